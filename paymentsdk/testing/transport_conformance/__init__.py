"""The rules that every transport keeps, as a suite that you can run on your own.

With pytest and pytest-asyncio::

    import pytest
    from paymentsdk.testing.transport_conformance import CASES

    def make_transport(*, ca=None, limit=100):
        return MyTransport(...)

    @pytest.mark.parametrize("case", CASES, ids=str)
    async def test_conformance(case):
        await case.run(make_transport)

Every case runs against servers on 127.0.0.1 that misbehave in every known way. The cases about TLS need the package
``trustme``. A rule that your transport cannot keep is declared, with the reason, and then has to be broken::

    DEVIATIONS = [Deviation("surplus_bytes_end_the_connection", "the parser of ... fails the whole response")]
    ...
        await case.run(make_transport, DEVIATIONS)
"""

from __future__ import annotations

from paymentsdk.testing.transport_conformance import (  # noqa: F401 - their rules enter CASES
    _connections,
    _load,
    _requests,
    _responses,
    _secrets,
    _shapes,
    _tls,
)
from paymentsdk.testing.transport_conformance._case import CASES, Case, Deviation, MakeTransport
from paymentsdk.testing.transport_conformance._deviations import AIOHTTP_DEVIATIONS, INJECTED_SESSION_DEVIATIONS

__all__ = ["AIOHTTP_DEVIATIONS", "CASES", "INJECTED_SESSION_DEVIATIONS", "Case", "Deviation", "MakeTransport"]
