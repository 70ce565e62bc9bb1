"""Reports about released money (4.9)."""

from __future__ import annotations

from paymentsdk._contract.identity import Echo
from paymentsdk._contract.operation import Operation
from paymentsdk._contract.rules import ErrorCode, RetryClass
from paymentsdk.resources.common import Id, Moment, Open, OpenEnum, Resource, ResponseStruct


class ReportOrigin(OpenEnum):
    """The origin of the report: a person, or the schedule."""

    MANUAL = "manual"
    SCHEDULE = "schedule"


class ReportStatus(OpenEnum):
    """State of a report. The contract names only ``deleted``."""

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
    """Whether the seller sees the report; `None` if not sent."""
    notify: bool | None = None
    """Whether the seller is notified of it; `None` if not sent."""
    use_exact_time: bool | None = None
    """Whether it begins and ends at the exact time."""


class ReleaseReport(ResponseStruct):
    """A report about released money. Any field can be missing: the response to a deletion may have no body at all."""

    id: Id | None = None
    """The id of the report; `None` if not sent."""
    account_id: Id | None = None
    """The id of the account of the report; `None` if not sent."""
    begin_date: Moment | None = None
    """The begin of the time that it covers, a timestamp in UTC; `None` if not sent."""
    end_date: Moment | None = None
    """The end of the time that it covers, a timestamp in UTC; `None` if not sent."""
    created_from: Open[ReportOrigin] | None = None
    """The origin: `manual` (a person) or `schedule`; `None` if not sent."""
    currency_id: str | None = None
    """The currency of its amounts, such as `ARS`; `None` if not sent."""
    generation_date: Moment | None = None
    """Timestamp of the generation, with its offset; `None` if not sent."""
    internal_management: tuple[InternalManagement, ...] | None = None
    """How the platform handles the report; `None` if not sent."""
    is_reserve: bool | None = None
    """Whether it is about reserved money; `None` if not sent."""
    is_test: bool | None = None
    """Whether it is a test report; `None` if not sent."""
    last_modified: Moment | None = None
    """Timestamp of the last change, with its offset; `None` if not sent."""
    report_id: Id | None = None
    """The id of the report that the schedule belongs to; `None` if not sent."""
    retries: int | None = None
    """The number of attempts to generate it; `None` if not sent."""
    status: Open[ReportStatus] | None = None
    """`deleted` after the schedule was disabled; the contract names no other value."""
    sub_type: Open[ReportSubType] | None = None
    """The kind of report: `release`; `None` if not sent."""
    user_id: Id | None = None
    """The user id of the seller; `None` if not sent."""
    format: Open[ReportFormat] | None = None
    """The format of its file: `CSV`; `None` if not sent."""


DISABLE_SCHEDULE: Operation[None, ReleaseReport] = Operation(
    name="release_reports.disable_schedule",
    method="DELETE",
    path="/v1/account/release_report/schedule",
    section="4.9",
    summary="Disable the automatic generation of release reports",
    retry=RetryClass.REPEATABLE,
    in_doubt="send it again: a repetition does no harm",
    result=ReleaseReport,
    other_statuses=(204,),
    empty_response=True,
    echoes=(Echo("status", always="deleted"),),
    # The contract says "invalid token" in words; this code is the code of the merchant order search.
    errors=(ErrorCode(401, "invalid_token", "the access token is invalid or has expired"),),
)


class ReleaseReports(Resource):
    """``client.release_reports``: reports about released money."""

    async def disable_schedule(self) -> ReleaseReport:
        """Disable the automatic generation of release reports (4.9). A repetition does no harm.

        Returns:
            The report with the status ``deleted``, or without any field if the platform responds without a body.

        Raises:
            AuthenticationFailed: The token is not valid.
            OutcomeUnknown: The schedule may be disabled. Disable it again.
        """
        return await self._read(DISABLE_SCHEDULE)
