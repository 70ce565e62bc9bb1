"""Transports, which send requests: one module per HTTP library, imported only by programs that use it."""

__all__: list[str] = []  # The modules have the names.
