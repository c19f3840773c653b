"""What a run does with a cluster that it cannot have."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from tidelog.chaos.run import had
from tidelog.chaos.targets import Cluster
from tidelog.errors import LocalError


class Unavailable:
    """A cluster one of whose brokers had begun its history when another did not start."""

    def __init__(self, results: Path) -> None:
        self._results = results

    async def __aenter__(self) -> None:
        (self._results / "histories").mkdir()
        (self._results / "histories" / "1.jsonl").write_text("{}\n")
        raise LocalError("broker 2 ended with status 1")

    async def __aexit__(self, *_: object) -> None:
        pytest.fail("it was never entered")


def test_the_directory_of_the_results_is_empty_again_where_the_cluster_cannot_be_had(tmp_path: Path) -> None:
    async def run() -> None:
        async with had(cast(Cluster, Unavailable(tmp_path)), tmp_path):
            pytest.fail("there is no cluster")

    with pytest.raises(LocalError, match="broker 2 ended"):
        asyncio.run(run())
    assert list(tmp_path.iterdir()) == []
