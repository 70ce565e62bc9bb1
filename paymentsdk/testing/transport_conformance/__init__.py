"""The rules that every transport keeps, as a suite that you can run on your own.

With pytest and pytest-asyncio::

    import pytest
    from paymentsdk.testing.transport_conformance import CASES

    def make_transport(*, ca=None, limit=100):
        return MyTransport(...)

    @pytest.mark.parametrize("case", CASES, ids=str)
    async def test_conformance(case):
        await case.run(make_transport)

Every case runs against servers on 127.0.0.1 that answer as badly as they can. The cases about TLS need the package
``trustme``. To leave a case out: ``[case for case in CASES if case.name != "..."]``, with your reason beside it.
"""

from __future__ import annotations

from paymentsdk.testing.transport_conformance import (  # noqa: F401 - their rules enter CASES
    _answers,
    _connections,
    _requests,
    _secrets,
    _tls,
)
from paymentsdk.testing.transport_conformance._case import CASES, Case, MakeTransport

__all__ = ["CASES", "Case", "MakeTransport"]
