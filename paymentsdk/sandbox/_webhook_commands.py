"""The commands of the control API for webhooks and deliveries; `_commands.py` has the others."""

from paymentsdk.sandbox._commands import command, tenant_of
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._signers import Webhook, WebhookRequest
from paymentsdk.sandbox._webhooks import Delivery
from paymentsdk.sandbox._wire import Rejected


@command("POST", "tenants/{id}/webhooks")
def add_webhook(platform: Platform, user_id: str, body: WebhookRequest) -> Webhook:
    """Register a webhook of a seller (`x-beyond-contract`). The response has its secret."""
    return platform.webhooks.add(body, tenant_of(platform, user_id))


@command("GET", "tenants/{id}/webhooks")
def webhooks(platform: Platform, user_id: str) -> tuple[Webhook, ...]:
    """List the webhooks of a seller, with their secrets."""
    return platform.webhooks.list(tenant_of(platform, user_id))


@command("DELETE", "tenants/{id}/webhooks/{webhook}")
def remove_webhook(platform: Platform, user_id: str, webhook_id: str) -> Webhook:
    """Remove a webhook."""
    for webhook in platform.webhooks.list(tenant_of(platform, user_id)):
        if webhook.id == webhook_id:
            platform.webhooks.remove(webhook)
            return webhook
    raise Rejected(404, "not_found", "the seller has no such webhook")


@command("POST", "deliveries/{id}/redeliver")
def redeliver(platform: Platform, delivery_id: str) -> Delivery:
    """Send a notification again, also to a webhook that a 410 has disabled."""
    return platform.webhooks.redeliver(delivery_id)
