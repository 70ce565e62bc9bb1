"""`Http11Transport` as it was in version 0.2, before the call became one path: what a safe call is held against.

The copy is frozen, so that a faster transport does not make the price of safety look higher. It needs httptools.
"""

from benchmarks.contestants.frozen_http11.transport import Http11Transport as Http11Transport
