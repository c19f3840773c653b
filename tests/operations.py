"""docs/OPERATIONS.md, for tests that compare it with the code."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
OPERATIONS: Final = (ROOT / "docs/OPERATIONS.md").read_text()


def section(title: str) -> str:
    """Return the text below a heading, up to the next heading of its level."""
    return OPERATIONS.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
