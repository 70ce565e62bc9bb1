"""The schedule of release reports."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from paymentsdk.resources import release_reports
from paymentsdk.sandbox import FaultRule

SCHEDULE = "/v1/account/release_report/schedule"
REPORT = {
    "created_from": "schedule", "sub_type": "release", "format": "CSV", "currency_id": "ARS", "status": "deleted",
    "begin_date": "2026-03-01T00:00:00.000Z", "end_date": "2026-03-01T23:59:59.999Z",
    "generation_date": "2026-03-02T12:00:00.000Z", "last_modified": "2026-03-02T12:00:00.000Z",
    "internal_management": [{"is_visible": True, "notify": True, "use_exact_time": False}],
    "is_reserve": False, "is_test": True, "retries": 0,
}  # fmt: skip


async def test_the_schedule_can_be_disabled(plain, sandbox):
    """The report of yesterday, with the status `deleted`; doing it twice changes nothing more."""
    sandbox.clock.freeze(datetime(2026, 3, 2, 12, tzinfo=UTC))
    report = (await plain("DELETE", SCHEDULE)).json
    sandbox.clock.advance("P1D")

    assert report == (await plain("DELETE", SCHEDULE)).json
    assert [8, 8] == [len(str(report.pop(name))) for name in ("id", "report_id")]
    assert [sandbox.tenant.user_id] * 2 == [report.pop(name) for name in ("user_id", "account_id")]
    assert REPORT == report
    assert ["schedule_disabled"] == [entry.kind for entry in sandbox.ledger()]


@pytest.mark.parametrize("effect", ["drip", "truncate"])
async def test_a_response_without_a_body_has_none(plain, sandbox, monkeypatch, effect):
    """Of a 204 there is nothing to send slowly, or by half: the response is one, and the log says so."""
    monkeypatch.setitem(vars(release_reports.DISABLE_SCHEDULE), "status", 204)
    sandbox.faults.add(FaultRule(effect=effect))

    response = await plain("DELETE", SCHEDULE)

    [line] = (await plain("GET", "/_sandbox/requests")).json
    assert (204, b"", "") == (response.status, response.raw, line["response"])
