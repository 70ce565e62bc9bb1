[...document.querySelectorAll(
  '#open, #settled-rows, #checkout-rows, #delivery-rows, #merchant-orders-rows, #ledger-rows, #faults, ' +
  '#requests, #exports'
)].map((list) => list.innerText).join("\n")
