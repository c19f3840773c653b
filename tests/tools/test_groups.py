"""Tests that share a cluster or a Spark session have to run in one worker: else each worker starts its own."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("one worker")
def test_who_shares_out_the_tests_is_told_of_groups(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("nobody shares them out here: pytest -n 2 --dist loadgroup")
    assert request.node.nodeid.endswith("@one worker")
