"""A fresh cluster of three real brokers for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.harness.cluster import RunningCluster, running_cluster


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    """Three brokers; settings come from `@pytest.mark.parametrize("cluster", [{…}], indirect=True)`."""
    with running_cluster(tmp_path, **getattr(request, "param", {})) as started:
        yield started
