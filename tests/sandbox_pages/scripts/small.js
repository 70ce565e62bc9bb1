[...document.querySelectorAll("main button, summary, select")].filter((one) => one.checkVisibility())
  .filter((one) => Math.min(one.getBoundingClientRect().width, one.getBoundingClientRect().height) < 24)
  .map((one) => one.outerHTML).join("; ")
