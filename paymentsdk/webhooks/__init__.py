"""Notifications: verify what the platform sends to your service.

A notification only says which resource has changed. Verify it, answer 202, then read the resource::

    webhook = Webhook.standard(os.environ["WEBHOOK_SECRET"])
    notification = webhook.verify(request.headers, await request.read())

The contract shows neither the body nor the signature of a notification (section Events), so there are two schemes.
`Webhook.standard` is the public standard "Standard Webhooks 1.0". `Webhook.manifest` signs a text that you declare.
"""

from __future__ import annotations

from paymentsdk.webhooks._inbox import Inbox, Look, state_of
from paymentsdk.webhooks._table import InboxDepth, InboxRow
from paymentsdk.webhooks._verify import InvalidSignature, Notification, Webhook

__all__ = ["Inbox", "InboxDepth", "InboxRow", "InvalidSignature", "Look", "Notification", "Webhook", "state_of"]
