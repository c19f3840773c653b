"""Collects the values of one measurement, which takes minutes, and shows each as soon as it is known."""

from __future__ import annotations

from collections.abc import Callable

from tools.bench.results import Figure
from tools.bench.table import number


class Findings:
    """The `values` of a benchmark's figures by key. `say` shows a line of progress."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.values: dict[str, float] = {}
        self._say = say

    def note(self, figure: Figure, value: float) -> None:
        self.values[figure.key] = value
        self._say(f"      {figure.what}: {number(value)} {figure.unit}")
