"""Transports, which carry requests: one module per HTTP library, imported only by programs that use it."""

__all__: list[str] = []  # What there is stands in its modules.
