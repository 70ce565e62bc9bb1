"""Tells PyInstaller which files and modules a frozen program needs."""

from __future__ import annotations

from pathlib import Path


def hook_dirs() -> list[str]:
    """Return the folder of the hook; PyInstaller asks for it through an entry point."""
    return [str(Path(__file__).parent)]
