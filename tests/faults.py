"""The servers that misbehave, for the tests of transports: the package has them for its conformance suite."""

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
