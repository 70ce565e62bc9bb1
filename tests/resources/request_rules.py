"""Requests with every member of the contract, and every rule with a value that breaks it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from paymentsdk import OPERATIONS

_ROWS = msgspec.json.decode(Path(__file__).with_name("requests.json").read_bytes(), type=dict[str, msgspec.Raw])
#: One request per operation as it goes out: its row, with every member that the spec names, or else its example.
WHOLE = {
    name: msgspec.json.encode(_ROWS.get(name, operation.example)).decode()
    for name, operation in OPERATIONS.items()
    if operation.body
}
#: A place in a whole request, what is put there, where the error points, and what it says.
BROKEN = [
    ("oauth.token", "client_id", "", "$.client_id", "length >= 1"),
    ("oauth.token", "grant_type", "password", "$.grant_type",
     "Invalid enum value 'password': must be one of authorization_code, refresh_token"),
    ("oauth.token", "code", None, "$.code", "authorization_code"),
    ("oauth.token", "refresh_token", "r", "$.refresh_token", "cannot be combined with"),
    ("oauth.token", "surprise", "x", "$", "unknown field `surprise`"),
    ("preferences.create", "items", [], "$.items", "length >= 1"),
    ("preferences.create", "items.0.quantity", 0, "$.items[0].quantity", ">= 1"),
    ("preferences.create", "items.0.quantity", 1.5, "$.items[0].quantity", "Expected `int"),
    ("preferences.create", "items.0.unit_price", -1, "$.items[0].unit_price", "must not be negative"),
    ("preferences.create", "items.0.unit_price", 0.125, "$.items[0].unit_price", "two decimals"),
    ("preferences.create", "items.0.unit_price", "NaN", "$.items[0].unit_price", "finite"),
    ("preferences.create", "items.0.event_date", "2026-02-31", "$.items[0].event_date", "neither a date"),
    ("preferences.create", "payer.last_purchase", 5, "$.payer.last_purchase", "neither a date"),
    ("preferences.create", "expiration_date_to", "2027-01-31", "$.expiration_date_to", "RFC3339"),
    ("preferences.create", "items.0.warranty", "yes", "$.items[0].warranty", "Expected `bool"),
    ("preferences.create", "payment_methods.installments", 37, "$.payment_methods.installments", "<= 36"),
    ("preferences.create", "payment_methods.default_installments", 0, "$.payment_methods.default_installments", ">= 1"),
    ("preferences.create", "payer.authentication_type", "gmail", "$.payer.authentication_type",
     "Invalid enum value 'gmail': must be one of Facebook, Gmail, Native web, Other"),
    ("preferences.create", "back_urls.success", "shop.example.com", "$.back_urls.success", "http or https"),
    ("preferences.create", "back_urls.failure", "https://shop.example.com\n", "$.back_urls.failure", "http or https"),
    ("preferences.create", "back_urls.failure", "https://shöp.example.com", "$.back_urls.failure", "http or https"),
    ("preferences.create", "auto_return", "all", "$.auto_return", "Invalid enum value 'all': must be one of approved"),
    ("preferences.create", "marketplace_fee", 151.53, "$.marketplace_fee", "above the total amount"),
    ("preferences.create", "differential_pricing.id", "7", "$.differential_pricing.id", "Expected `int"),
    ("preferences.create", "expiration_date_to", "2026-01-31T09:29:59-04:00", "$.expiration_date_to", "not after"),
    ("wallet_payments.create", "wallet_payment", None, "$.wallet_payment", "Expected `object"),
    ("wallet_payments.create", "wallet_payment.transaction_amount", 0, "$.wallet_payment.transaction_amount", "above"),
    ("wallet_payments.create", "wallet_payment.discount.amount", -1, "$.wallet_payment.discount.amount", "negative"),
    ("wallet_payments.create", "payer", None, "$.payer", "Expected `object"),
    ("wallet_payments.create", "payer.token", "", "$.payer.token", "length >= 1"),
    ("customers.create", "email", "ana@example", "$.email", "must be an address"),
    ("customers.create", "email", "ana@example.com\n", "$.email", "must be an address"),
    ("customers.create", "email", "änna@example.com", "$.email", "must be an address"),
    ("customers.create", "date_registered", "yesterday", "$.date_registered", "neither a date"),
    ("customers.create", "phone.area_code", {}, "$.phone.area_code", "Expected `int | str"),
    ("customers.create", "metadata", "vip", "$.metadata", "Expected `object"),
    ("orders.create", "external_reference", "a" * 65, "$.external_reference", "length <= 64"),
    ("orders.create", "external_reference", "a\n", "$.external_reference", "must consist of ASCII letters"),
    ("orders.create", "external_reference", "\u0663", "$.external_reference", "must consist of ASCII letters"),
    ("orders.create", "description", "a" * 151, "$.description", "length <= 150"),
    ("orders.create", "type", "online", "$.type", "Invalid enum value 'online': must be one of qr"),
    ("orders.create", "total_amount", "49.00", "$.total_amount", "sum of the transactions"),
    ("orders.create", "total_amount", "50.001", "$.total_amount", ""),
    ("orders.create", "transactions.payments", [], "$.transactions.payments", "length >= 1"),
    ("orders.create", "transactions.payments", [{"amount": "25"}] * 2, "$.transactions.payments", "length <= 1"),
    ("orders.create", "marketplace_fee", "50.01", "$.marketplace_fee", "above the total amount"),
    ("orders.create", "expiration_time", "PT29S", "$.expiration_time", "30 seconds"),
    ("orders.create", "expiration_time", "PT3601H", "$.expiration_time", "3600 hours"),
    ("orders.create", "expiration_time", "5 minutes", "$.expiration_time", "ISO 8601"),
    ("orders.create", "expiration_time", "P1M", "$.expiration_time", "of weeks to seconds"),
    ("orders.create", "config.qr.mode", "magic", "$.config.qr.mode",
     "Invalid enum value 'magic': must be one of dynamic, hybrid, static"),
    ("orders.create", "items.0.unit_measure", "a" * 11, "$.items[0].unit_measure", "length <= 10"),
    ("orders.create", "items.0.quantity", 1.5, "$.items[0].quantity", "Expected `int`"),
    ("orders.create", "items.0.external_categories", [{"id": "x"}], "$.items[0].external_categories", "discounts"),
    ("orders.create", "discounts.payment_methods", [{"new_total_amount": "1", "type": "cash"}],
     "$.discounts.payment_methods[0].type", "one of account_money, credit_card, debit_card, prepaid_card"),
    ("orders.create", "discounts.payment_methods", [{"new_total_amount": "1", "type": "credit_card"}] * 5,
     "$.discounts.payment_methods", "length <= 4"),
    ("orders.create", "discounts.payment_methods.0.new_total_amount", "0",
     "$.discounts.payment_methods[0].new_total_amount", "above 0"),
    ("orders.create", "discounts.payment_methods.0.new_total_amount", "50.01",
     "$.discounts.payment_methods[0].new_total_amount", "above the total amount"),
    ("orders.create", "integration_data.integrator_id", "prod_3", "$.integration_data.integrator_id", "with dev_"),
    ("orders.create", "notification_url", "https://shop.example.com", "$", "unknown field `notification_url`"),
    ("orders.refund", "transactions.0.amount", "0", "$.transactions[0].amount", "above 0"),
]  # fmt: skip


def put(request: object, path: str, value: object) -> None:
    """Put *value* at *path* into *request*."""
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    for step in steps:
        request = request[step]
    request[last] = value
