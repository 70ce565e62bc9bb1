"""What a call is made of, and what is noted while it is under way. `Engine` prepares it, `call.py` carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from paymentsdk._engine.observed import ObservedCall
from paymentsdk._engine.retry import History
from paymentsdk._engine.settings import bound_of

if TYPE_CHECKING:
    from paymentsdk._auth.schemes import Exchange, Signer
    from paymentsdk._engine.bearer import Bearer
    from paymentsdk.journal._call import Permit
    from paymentsdk.transports.base import Response

B = TypeVar("B")
R = TypeVar("R")


class PreparedCall(ObservedCall[B, R], eq=False):
    """One body, one key and one deadline for all attempts."""

    bearer: Bearer
    signer: Signer | None
    """Signs the attempts, where no token does."""
    exchange: Exchange
    body: B | None
    path: Mapping[str, str]
    """The values in the path."""
    offset: object
    """Where the page begins that is asked for."""
    content: bytes
    headers: Mapping[str, str] | None
    """Header fields of this call alone."""
    caller_supplied_key: bool
    """Whether the key is the caller's own: an earlier call may have sent it."""
    total_deadline: float
    """When the call has to end, on the monotonic clock."""
    history: History | None = None
    """`past`, once there is one; most calls have none."""
    sending_wall: float = 0.0
    """When the attempt under way was sent, in seconds since the epoch."""
    token: str | None = None
    """The bearer token of the attempt. It is in no variable of a function that waits: tracebacks can show those."""
    signature: tuple[str, ...] = ()
    """The values of the header fields that the attempt was signed with."""
    renewed: bool = False
    """Whether the signer has another secret than that of the signature that was rejected."""
    refreshed: bool = False
    """Whether a rejected token was refreshed; the next rejection is final."""
    disputed: tuple[str, ...] = ()
    """The additions that a response had and another call was told of."""
    permit: Permit | None = None
    """Of a journaled call: awaited before each attempt with its seconds; says why there may be none."""
    last_response: Response | None = None
    """The response that ended the call, if it failed with one."""
    fresh: bool = False
    """Send on a fresh connection: one before has brought a response that is not the response to its request."""

    @property
    def ran_out(self) -> str:
        """Which bound it is that ends the wait."""
        bound = bound_of(self.settings.timeout, attempt=self.deadline.when < self.total_deadline)
        return f"the time ran out ({bound})"

    @property
    def past(self) -> History:
        """What the failures have shown, to be noted or asked for after one."""
        if self.history is None:
            self.history = History()
        return self.history

    def __repr__(self) -> str:
        return f"<Call {self.operation.name}>"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("operation", self.operation)]
