"""What the platform says of a payment besides its status; invoices have words of their own."""

from __future__ import annotations

from collections.abc import Mapping

#: The ``status_detail`` that goes with a status.
DETAILS: Mapping[str, str] = {
    "approved": "accredited",
    "authorized": "pending_capture",
    "in_process": "pending_contingency",
    "pending": "pending_contingency",
    "refunded": "refunded",
    "rejected": "cc_rejected_other_reason",
}
