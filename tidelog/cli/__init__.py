"""The command `tidelog`."""

from __future__ import annotations

from tidelog.cli.program import main

__all__ = ["main"]
