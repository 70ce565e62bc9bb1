"""The whole life of a call, top to bottom."""

from __future__ import annotations


class Caller:
    """placeholder while the engine is being written"""
