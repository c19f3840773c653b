"""The states of partitions in ZooKeeper during a fault, and the states that are not allowed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from kazoo.client import KazooClient
from kazoo.protocol.states import ZnodeStat

from cluster.state import VersionedState
from cluster.zookeeper import znodes
from tidelog import TopicPartition
from tidelog.model import NO_LEADER


class StateHistory:
    """Every state that was seen of some partitions, in order; states that followed fast upon each other are missed."""

    def __init__(self, zookeeper: str, tps: Sequence[TopicPartition]) -> None:
        self._client = KazooClient(zookeeper, timeout=10)
        self._lock = threading.Lock()
        self._seen: dict[TopicPartition, list[VersionedState]] = {tp: [] for tp in tps}

    def __enter__(self) -> Self:
        self._client.start(timeout=30)
        for tp in self._seen:
            self._watch(tp)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._client.stop()
        self._client.close()

    def _watch(self, tp: TopicPartition) -> None:
        @self._client.DataWatch(znodes.state_path(tp))  # type: ignore[untyped-decorator]
        def note(data: bytes | None, stat: ZnodeStat | None) -> None:
            if data is not None and stat is not None:
                with self._lock:
                    self._seen[tp].append(VersionedState(znodes.decode_state(data), stat.version))

    def of(self, tp: TopicPartition) -> list[VersionedState]:
        """Return the states that were seen so far."""
        with self._lock:
            return list(self._seen[tp])

    def epochs_of(self, tp: TopicPartition) -> set[int]:
        """The leader epochs that were seen."""
        return {each.state.leader_epoch for each in self.of(tp)}

    def check(self) -> None:
        """`check_states` of each partition."""
        for tp in self._seen:
            check_states(tp, self.of(tp))


def check_states(tp: TopicPartition, history: Sequence[VersionedState]) -> None:
    """No version stands for two states, epochs never fall, a leader is in sync, and no epoch has two leaders."""
    for before, after in itertools.pairwise(history):
        if after == before:  # seen again after a reconnect
            continue
        assert after.partition_epoch > before.partition_epoch, f"{tp}: {before} was followed by {after}"
        assert after.state.leader_epoch >= before.state.leader_epoch, f"{tp}: {before}, then {after}"
        assert after.state.controller_epoch >= before.state.controller_epoch, f"{tp}: {before}, then {after}"
    leaders: dict[int, set[int]] = {}
    for each in history:
        assert each.state.isr, f"{tp}: no replica is in sync in {each}"
        if each.state.leader != NO_LEADER:
            assert each.state.leader in each.state.isr, f"{tp}: the leader is not in sync in {each}"
            leaders.setdefault(each.state.leader_epoch, set()).add(each.state.leader)
    assert all(len(each) == 1 for each in leaders.values()), f"{tp}: an epoch with two leaders: {leaders}"
