"""Cases of a parametrized test of which CI runs only some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def each_fourth(cases: Sequence[Any]) -> list[Any]:
    """Return all cases. Only each fourth one is part of CI, and the others are slow."""
    return [each if number % 4 == 0 else _slow(each) for number, each in enumerate(cases)]


def _slow(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
