"""Clients that die at every commit and at every await, one after the other: nothing depends on where it happens.

A client is a fork of this process, so that hundreds of them take seconds. Number *n* makes one call, one with a token
that has ended, or recovers what the others have left, and is killed by SIGKILL at its step *n*: whenever one of its
tasks waits, and before and after each commit to the file. The series is over when a client comes to its end.

`python -m tests.chaos.steps PLAN USERS` prints how many have died.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import msgspec
from msgspec import structs

from paymentsdk import _sqlite
from tests.chaos.tokens import Tokens
from tests.chaos.worker import MUST_AUTHORISE, Caller, Diary, Plan, client_of, recover

#: More steps than a call or a recovery has.
MOST = 2_000
#: The exit code of a client that was told that its seller must authorize again.
LOST = 3


class Steps:
    """Counts steps, and kills this process at one of them."""

    def __init__(self, last: int) -> None:
        self._left = last

    def take(self) -> None:
        """Take a step, which may be the last."""
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    def task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, object], **more: Any
    ) -> asyncio.Task[object]:
        """Make a task that takes a step whenever it waits."""
        return asyncio.Task(_Counted(work, self.take), loop=loop, **more)

    def commit(self, database: sqlite3.Connection) -> None:
        """Commit, with a step before and one after it."""
        self.take()
        _COMMIT(database)
        self.take()


_COMMIT = _sqlite.commit


class _Counted(Coroutine[Any, Any, Any]):
    """A coroutine that says when it waits."""

    def __init__(self, work: Coroutine[Any, Any, object], step: Callable[[], None]) -> None:
        self._work, self._step = work, step

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()

    def send(self, value: object) -> object:
        waits = self._work.send(value)
        self._step()
        return waits

    def throw(self, *error: Any) -> object:
        waits = self._work.throw(*error)
        self._step()
        return waits

    def close(self) -> None:
        self._work.close()


async def _one(plan: Plan, number: int) -> str:
    diary, sent = Diary(plan.folder / "told"), Diary(plan.folder / "sent")
    async with client_of(plan, sent) as client:
        if plan.recover_only:
            await recover(client, diary)
            return "done"
        # Each seller has its turn, with an order that is not rejected, nor followed by other writes.
        return await Caller(plan, client, diary).call_number(55 * number)


def _child(plan: Plan, number: int) -> int:
    """Return the exit code of the client, if it comes to its end."""
    steps = Steps(number)
    _sqlite.commit = steps.commit

    async def counted() -> str:
        asyncio.get_running_loop().set_task_factory(steps.task)
        return await asyncio.create_task(_one(plan, number))

    return LOST if asyncio.run(counted()) == MUST_AUTHORISE else 0


def die_everywhere(plan: Plan, tokens: Tokens) -> int:
    """Run clients that die at their first step, their second and so on, until one does not; return how many died."""
    number = 1
    while number < MOST:
        place = number % len(plan.sellers)
        if plan.refreshes:
            asyncio.run(tokens.expire(place))
        child = os.fork()
        if not child:
            code = 1
            try:
                code = _child(structs.replace(plan, seed=plan.seed + number), number)
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == -signal.SIGKILL:
            number += 1
        elif code == LOST:
            asyncio.run(tokens.authorize(place))
        elif code == 0:
            return number - 1
        else:
            raise SystemExit(f"a client that was to be killed failed by itself: {code}")
    raise SystemExit(f"a client did not come to its end in {MOST} steps")


if __name__ == "__main__":
    # Imported here, and not by each of those that die.
    import aiohttp  # noqa: F401

    given, users = json.loads(sys.argv[1]), json.loads(sys.argv[2])
    plan = msgspec.convert(given, Plan, dec_hook=lambda to, text: to(text))
    sys.stdout.write(str(die_everywhere(plan, Tokens(plan, users))))
