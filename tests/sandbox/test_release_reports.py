"""The schedule of release reports."""

from __future__ import annotations

from datetime import timedelta

import pytest

from paymentsdk.resources import release_reports
from paymentsdk.sandbox import FaultRule
from tests.sandbox.orders import members


async def test_the_schedule_can_be_disabled(client, sandbox):
    """The report of yesterday, with the status `deleted`; doing it twice changes nothing more."""
    report = await client.release_reports.disable_schedule()
    sandbox.clock.advance("P1D")

    assert ("deleted", "schedule", "release", "CSV", "ARS") == members(
        report, "status created_from sub_type format currency_id"
    )
    assert sandbox.tenant.user_id == report.user_id == report.account_id
    assert report.end_date - report.begin_date == timedelta(days=1, milliseconds=-1)
    assert all(getattr(report, name) is not None for name in report.__struct_fields__)
    assert report == await client.release_reports.disable_schedule()
    assert 1 == len(sandbox.ledger())


@pytest.mark.parametrize("effect", ["drip", "truncate"])
async def test_a_response_without_a_body_has_none(plain, sandbox, monkeypatch, effect):
    """Of a 204 there is nothing to send slowly, or by half: the response is one, and the log says so."""
    monkeypatch.setitem(vars(release_reports.DISABLE_SCHEDULE), "status", 204)
    sandbox.faults.add(FaultRule(effect=effect))

    response = await plain("DELETE", "/v1/account/release_report/schedule")

    [line] = (await plain("GET", "/_sandbox/requests")).json
    assert (204, b"", "") == (response.status, response.raw, line["response"])
