"""Release reports (4.9): a schedule that can be disabled."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from paymentsdk.resources import release_reports
from paymentsdk.resources.release_reports import (
    InternalManagement,
    ReleaseReport,
    ReportFormat,
    ReportOrigin,
    ReportStatus,
    ReportSubType,
)
from paymentsdk.sandbox.book import Book, Call
from paymentsdk.sandbox.records import REPORTS, ReportRecord


def disable_schedule(book: Book, call: Call[None]) -> ReleaseReport:  # noqa: ARG001 - as every behaviour
    """Disable the seller's schedule; doing it twice changes nothing more."""
    record = book.get(REPORTS, str(book.tenant.user_id))
    report = _scheduled(book) if record is None else record.report
    if report.status != ReportStatus.DELETED:
        report = replace(report, status=ReportStatus.DELETED, last_modified=book.now)
        book.put(REPORTS, ReportRecord(user_id=book.tenant.user_id, report=report))
        book.enter("schedule_disabled", id=str(report.id), order_id=str(report.id))
    return report


def _scheduled(book: Book) -> ReleaseReport:
    """Return the report of yesterday: every seller has a schedule until it is disabled."""
    today = book.now.replace(hour=0, minute=0, second=0, microsecond=0)
    return ReleaseReport(
        id=book.ids.number(8),
        account_id=book.tenant.user_id,
        begin_date=today - timedelta(days=1),
        end_date=today - timedelta(milliseconds=1),
        created_from=ReportOrigin.SCHEDULE,
        currency_id=book.tenant.currency,
        generation_date=book.now,
        internal_management=(InternalManagement(is_visible=True, notify=True, use_exact_time=False),),
        is_reserve=False,
        is_test=True,
        last_modified=book.now,
        report_id=book.ids.number(8),
        retries=0,
        sub_type=ReportSubType.RELEASE,
        user_id=book.tenant.user_id,
        format=ReportFormat.CSV,
    )


BEHAVIOUR = {release_reports.DISABLE_SCHEDULE: disable_schedule}
