"""The misbehaving servers of the conformance suite, for the tests of transports."""

from paymentsdk.testing._fault_server import (
    FaultServer,
    Peer,
    Script,
    Seen,
    always,
    http,
    refused_port,
    unanswered_port,
)

__all__ = ["FaultServer", "Peer", "Script", "Seen", "always", "http", "refused_port", "unanswered_port"]
