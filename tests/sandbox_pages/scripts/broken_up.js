(() => {
  const texts = [...document.querySelectorAll("time span, .amount, td .money")].filter((one) => one.checkVisibility());
  const right = (one) => one.getBoundingClientRect().right;
  const torn = (one) => one.matches("time span") && one.getClientRects().length > 1;
  const sticksOut = (one) => right(one) > right(one.closest(".what, td, li")) + 1;
  return texts.filter((one) => torn(one) || sticksOut(one)).map((one) => one.textContent).join("; ");
})()
