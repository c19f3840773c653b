"""Reads the tables of docs/ANY-KAFKA.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.any_kafka.clusters import CLUSTERS

_PAGE = Path(__file__).parents[2] / "docs" / "ANY-KAFKA.md"
COMMANDS_TABLE, CALLS_TABLE = "## Commands", "## Calls"


def rows(heading: str) -> dict[str, Mapping[str, str]]:
    """Return the cells of the table below this heading by the first column in backticks, and by kind of cluster."""
    section = _PAGE.read_text().split(f"\n{heading}\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| `([^`]+)` \|(.*)\|$", section, re.MULTILINE)
    return {
        name: dict(zip(CLUSTERS, (cell.strip() for cell in cells.split("|")), strict=False)) for name, cells in found
    }
