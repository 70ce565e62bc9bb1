"""`Http11Transport` of version 0.2, before the call became one path: the comparison for the cost of a safe call.

The copy is frozen, texts included, so that a faster transport does not make safety look more expensive. It needs
httptools.
"""

from benchmarks.contestants.frozen_http11.transport import Http11Transport as Http11Transport
