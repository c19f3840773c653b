"""Implement the command `tidelog chaos`. Without the packages of a broker the import raises MissingExtraError."""

from __future__ import annotations

from tidelog.extras import require

require("local", "tidelog chaos")
