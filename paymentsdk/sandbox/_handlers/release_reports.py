"""Release reports (4.9): a schedule that can be disabled."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from paymentsdk.resources import release_reports
from paymentsdk.resources.release_reports import ReleaseReport
from paymentsdk.sandbox._noun import Handler, Noun, ParsedRequest, SellerContext
from paymentsdk.sandbox._records import REPORTS


def disable_schedule(context: SellerContext, request: ParsedRequest[None]) -> ReleaseReport:
    """Disable the seller's schedule. Repeating it has no further effect."""
    report = context.get(REPORTS, str(context.tenant.user_id)) or _scheduled(context)
    if report.status != release_reports.ReportStatus.DELETED:
        report = replace(report, status=release_reports.ReportStatus.DELETED, last_modified=context.now)
        context.put(REPORTS, report)
        context.record("schedule_disabled", id=str(report.id), order_id=str(report.id))
    return report


def _scheduled(context: SellerContext) -> ReleaseReport:
    """Return the report of yesterday. Every seller has a schedule at first."""
    today = context.now.replace(hour=0, minute=0, second=0, microsecond=0)
    return ReleaseReport(
        id=context.ids.number(8),
        account_id=context.tenant.user_id,
        begin_date=today - timedelta(days=1),
        end_date=today - timedelta(milliseconds=1),
        created_from=release_reports.ReportOrigin.SCHEDULE,
        currency_id=context.tenant.currency,
        generation_date=context.now,
        internal_management=(release_reports.InternalManagement(is_visible=True, notify=True, use_exact_time=False),),
        is_reserve=False,
        is_test=True,
        last_modified=context.now,
        report_id=context.ids.number(8),
        retries=0,
        sub_type=release_reports.ReportSubType.RELEASE,
        user_id=context.tenant.user_id,
        format=release_reports.ReportFormat.CSV,
    )


NOUN = Noun(handlers=[Handler(operation=release_reports.DISABLE_SCHEDULE, handle=disable_schedule)])
