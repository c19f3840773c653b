"""Fixtures: the tests of one cluster run in one worker, and share it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.any_kafka.clusters import CLUSTERS, AnyCluster, any_cluster


@pytest.fixture(
    scope="session",
    params=[pytest.param(kind, marks=pytest.mark.xdist_group(f"any-kafka-{kind}")) for kind in CLUSTERS],
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyCluster]:
    with any_cluster(request.param, tmp_path_factory.mktemp(request.param) / "cluster") as running:
        yield running
