(element) => {
  element.scrollIntoView({ block: "center" });
  window.missed = undefined;
  addEventListener("click", (event) => {
    window.missed = !element.contains(event.target);
    if (window.missed) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
  }, { capture: true, once: true });
  return JSON.stringify(element.getBoundingClientRect());
}
