"""Tests that share a cluster or a Spark session must run in one worker. Otherwise each worker starts its own."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("one worker")
def test_xdist_sees_the_groups_of_tests(request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("needs pytest -n 2 --dist loadgroup")
    assert request.node.nodeid.endswith("@one worker")
