"""Transports, which carry requests: one module per HTTP library, imported only by programs that use it."""
