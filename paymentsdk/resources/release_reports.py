"""Reports about released money (4.9)."""

from __future__ import annotations

from paymentsdk._operation.identity import Echo
from paymentsdk._operation.operation import Operation
from paymentsdk._operation.rules import ErrorCode, RetryClass
from paymentsdk.resources.common import Id, Moment, Open, OpenEnum, Resource, ResponseStruct

__all__ = [
    "DISABLE_SCHEDULE",
    "InternalManagement",
    "ReleaseReport",
    "ReleaseReports",
    "ReportFormat",
    "ReportOrigin",
    "ReportStatus",
    "ReportSubType",
]


class ReportOrigin(OpenEnum):
    """What made the report: a person, or the schedule."""

    MANUAL = "manual"
    SCHEDULE = "schedule"


class ReportStatus(OpenEnum):
    """State of a report. The contract names ``deleted`` alone."""

    DELETED = "deleted"


class ReportSubType(OpenEnum):
    """The kind of a report."""

    RELEASE = "release"


class ReportFormat(OpenEnum):
    """The format of a report's file."""

    CSV = "CSV"


class InternalManagement(ResponseStruct):
    """How the platform handles a report."""

    is_visible: bool | None = None
    """Whether the seller sees the report."""
    notify: bool | None = None
    """Whether the seller is told of it."""
    use_exact_time: bool | None = None
    """Whether it begins and ends at the exact time."""


class ReleaseReport(ResponseStruct):
    """A report about released money. Any member can be missing: the response to a deletion may have no body at all."""

    id: Id | None = None
    """The report."""
    account_id: Id | None = None
    """The account that it is about."""
    begin_date: Moment | None = None
    """The start of the time that it covers, UTC."""
    end_date: Moment | None = None
    """The end of the time that it covers, UTC."""
    created_from: Open[ReportOrigin] | None = None
    """Whether a person or the schedule made it."""
    currency_id: str | None = None
    """The currency of its amounts."""
    generation_date: Moment | None = None
    """When it was made."""
    internal_management: tuple[InternalManagement, ...] | None = None
    """How the platform handles it."""
    is_reserve: bool | None = None
    """Whether it is about reserved money."""
    is_test: bool | None = None
    """Whether it is a test."""
    last_modified: Moment | None = None
    """When it was last changed."""
    report_id: Id | None = None
    """The report that the schedule belongs to."""
    retries: int | None = None
    """How many attempts were made to generate it."""
    status: Open[ReportStatus] | None = None
    """Its state; `deleted` after the schedule was disabled."""
    sub_type: Open[ReportSubType] | None = None
    """Its kind."""
    user_id: Id | None = None
    """The seller."""
    format: Open[ReportFormat] | None = None
    """The format of its file."""


DISABLE_SCHEDULE: Operation[None, ReleaseReport] = Operation(
    name="release_reports.disable_schedule",
    method="DELETE",
    path="/v1/account/release_report/schedule",
    section="4.9",
    summary="Disable the automatic generation of release reports",
    retry=RetryClass.REPEATABLE,
    in_doubt="send it again: twice does no harm",
    result=ReleaseReport,
    other_statuses=(204,),
    empty_response=True,
    echoes=(Echo("status", always="deleted"),),
    # The contract says "invalid token" in words; the code is the one that the merchant order search has for it.
    errors=(ErrorCode(401, "invalid_token", "the access token is invalid or has expired"),),
)


class ReleaseReports(Resource):
    """``client.release_reports``: reports about released money."""

    async def disable_schedule(self) -> ReleaseReport:
        """Disable the automatic generation of release reports (4.9). Doing it twice does no harm.

        Returns:
            The report with the status ``deleted``, or one without any member where the platform responds with no body.

        Raises:
            AuthenticationFailed: The token is not valid.
            OutcomeUnknown: The schedule may be disabled. Disable it again.
        """
        return (await self._engine.call(DISABLE_SCHEDULE)).value
