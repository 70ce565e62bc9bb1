// Types of both documents, used with nothing but `fetch`: an order is made, paid by the control API, and read.
import type { operations as Api, components } from "./api.js";
import type { operations as Control } from "./control.js";

type Success<Operation, Status extends number> = Operation extends {
  responses: { [status in Status]: { content: { "application/json": infer Body } } };
}
  ? Body
  : never;

const { BASE_URL, ACCESS_TOKEN, PAYMENTSDK_EXTERNAL_POS_ID: POS = "" } = process.env;

async function call<Body>(method: string, path: string, body?: unknown): Promise<Body> {
  const headers = {
    Authorization: `Bearer ${ACCESS_TOKEN}`,
    "Content-Type": "application/json",
    "X-Idempotency-Key": crypto.randomUUID(),
  };
  const response = await fetch(`${BASE_URL}${path}`, { method, headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return (await response.json()) as Body;
}

const request: components["schemas"]["OrderRequest"] = {
  type: "qr",
  external_reference: "table-7",
  total_amount: "24.90",
  config: { qr: { external_pos_id: POS, mode: "dynamic" } },
  transactions: { payments: [{ amount: "24.90" }] },
};
// @ts-expect-error: an amount is a text, in which no cent is lost.
const wrong: components["schemas"]["OrderRequest"] = { ...request, total_amount: 24.9 };

const order = await call<Success<Api["orders.create"], 201>>("POST", "/v1/orders", request);
const paid = await call<Success<Control["pay_order"], 200>>("POST", `/_sandbox/orders/${order.id}/pay`);
const { status } = await call<Success<Api["orders.get"], 200>>("GET", `/v1/orders/${order.id}`);
const health: Success<Control["health"], 200> = await call("GET", "/_sandbox/health");
console.log(paid.id === order.id, status, typeof health, typeof wrong);
