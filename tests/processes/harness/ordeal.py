"""Runs a fault under load, and checks the result afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.processes.harness.cluster import RunningCluster
from tests.processes.harness.history import StateHistory
from tests.processes.harness.replica_files import assert_replicas_identical
from tests.processes.harness.witness import Witness
from tests.processes.harness.workload import Workload, read_all
from tidelog import TopicPartition

_LEAST_RECORDS = 200
_RECOVERY_S = 90


@dataclass(frozen=True)
class Ordeal:
    """A producer, a consumer and the history of the partitions' states, from before the fault to after it."""

    workload: Workload
    witness: Witness
    history: StateHistory


@contextmanager
def ordeal(cluster: RunningCluster, tps: list[TopicPartition]) -> Iterator[Ordeal]:
    """The fault stands in the `with`. After it every broker must run again, then all must be well.

    Every replica comes back in sync, acknowledgements go on, each acknowledged record is there once and in order,
    nothing that was ever read has changed, the replicas' files are the same, and no epoch had two leaders.
    """
    with (
        StateHistory(cluster.zookeeper_hosts, tps) as history,
        Witness(cluster.bootstrap_servers, tps) as witness,
        Workload(cluster.bootstrap_servers, tps) as workload,
    ):
        began, before = time.monotonic(), workload.acknowledged
        yield Ordeal(workload, witness, history)
        fault_s, during = time.monotonic() - began, workload.acknowledged - before
        for tp in tps:
            cluster.wait_in_sync(tp, timeout_s=_RECOVERY_S)
        workload.wait_acknowledged(100, timeout_s=_RECOVERY_S)
    found = read_all(cluster.bootstrap_servers, tps)
    records = workload.compare(found)
    assert records > _LEAST_RECORDS
    witness.check(found)
    assert witness.records, "the witness read nothing"
    history.check()
    batches = assert_replicas_identical(cluster, tps)
    elections = sum(len(history.epochs_of(tp)) - 1 for tp in tps)
    print(
        f"verdict: {during} acknowledged in {fault_s:.1f} s of the fault, longest pause"
        f" {workload.longest_gap_s(tps, since=began):.2f} s, {elections} epochs begun; {records} records read back in"
        f" order, {witness.records} seen meanwhile, {batches} batches alike on all replicas"
    )
