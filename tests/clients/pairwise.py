"""Few combinations that contain every pair of values of any two axes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import combinations, product

import pytest

Combination = tuple[str, ...]


def pairwise(*axes: Sequence[str]) -> list[Combination]:
    """Return combinations of the product in which each pair of values occurs, chosen greedily and always the same."""
    candidates = list(product(*axes))
    missing = set().union(*map(_pairs, candidates))
    chosen = []
    while missing:
        best = max(candidates, key=lambda each: len(_pairs(each) & missing))
        chosen.append(best)
        missing -= _pairs(best)
    return chosen


def product_with_slow_rest(*axes: Sequence[str], slow: Collection[str] = ()) -> list[object]:
    """Return the whole product as parameters; those beyond the pairwise selection are marked `slow`.

    The selection has no value of `slow`.
    """
    selected = set(pairwise(*([value for value in axis if value not in slow] for axis in axes)))
    return [
        pytest.param(*each, marks=[] if each in selected else pytest.mark.slow, id="-".join(each))
        for each in product(*axes)
    ]


def _pairs(combination: Combination) -> set[tuple[int, str, int, str]]:
    return {(i, a, j, b) for (i, a), (j, b) in combinations(enumerate(combination), 2)}
