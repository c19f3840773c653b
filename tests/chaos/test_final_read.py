"""Test that an incomplete final read proves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from tidelog.errors import LocalError, TidelogError, TimeoutError
from tidelog.model import TopicPartition
from verify.chaos import run
from verify.chaos.fault import Need
from verify.chaos.load import Load
from verify.chaos.results.verdict import UNPROVED
from verify.chaos.run import Request, Result, _ChaosRun
from verify.chaos.runner import Reporter
from verify.chaos.scenarios import SCENARIOS
from verify.chaos.targets.process_target import Cluster
from verify.checker.verdict import Verdict


@dataclass
class Ended:
    """A cluster at the end of a run."""

    bootstrap_servers: str = "127.0.0.1:1"
    tps: Sequence[TopicPartition] = (TopicPartition("t", 0),)
    broker_ids: Sequence[int] = (1, 2, 3)

    def lacks(self, need: Need) -> str | None:
        return None

    async def stop(self) -> None:
        """Do nothing, because the cluster has stopped."""

    def broker_dir(self, broker_id: int) -> Path:
        return Path(f"/nowhere/{broker_id}")


@pytest.mark.parametrize(
    ("reading", "copying"),
    [
        pytest.param(TimeoutError("the final read was not done within 120 s"), None, id="by a client"),
        pytest.param(None, LocalError("the logs of broker 3 cannot be read"), id="from the files of one broker"),
    ],
)
async def test_incomplete_final_read_has_not_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: TidelogError | None, copying: TidelogError | None
) -> None:
    copied: list[int] = []

    async def read_final_logs(*_: object) -> None:
        if reading is not None:
            raise reading

    async def copy_replica_logs(broker_id: int, *_: object) -> None:
        copied.append(broker_id)
        if copying is not None and broker_id == 3:
            raise copying

    monkeypatch.setattr(run, "read_final_logs", read_final_logs)
    monkeypatch.setattr(run, "copy_replica_logs", copy_replica_logs)
    request = Request(SCENARIOS["leader-kill"], (), 1, 1.0, Load())
    ordeal = _ChaosRun(request, cast(Cluster, Ended()), tmp_path, Reporter(), asyncio.Event())
    await ordeal.read_final_logs()
    assert ordeal.troubles == [f"the final logs are unknown: {reading or copying}"]
    assert copied == ([] if reading else [1, 2, 3])
    assert Result((), Verdict([], []), [], tmp_path).status != UNPROVED
    assert Result((), Verdict([], []), ordeal.troubles, tmp_path).status == UNPROVED
