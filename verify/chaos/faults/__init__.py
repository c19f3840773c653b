"""The implemented faults by rows of the catalogue: A processes F1–F18, B network F19–F34, C ZooKeeper F35–F42, D
storage and clock F43–F55.

docs/decisions/0017-proof.md lists the faults that cannot be injected, with reasons.
"""

from __future__ import annotations

from functools import partial

from verify.chaos.fault import Catalogue, Prerequisite
from verify.chaos.faults import (
    damage,
    full_disks,
    identities,
    killed_clients,
    power,
    processes,
    resources,
    system_calls,
    timestamps,
    turned_back,
    zookeeper,
)
from verify.chaos.faults.disks import Disks
from verify.chaos.faults.network import answers, late_requests, network, slow_network
from verify.chaos.faults.support.fault_base import FaultBase, Timing
from verify.chaos.faults.support.namespaces import Namespaces
from verify.chaos.faults.support.shim import Shim
from verify.chaos.scenarios import row_number

_FAULTS: tuple[type[FaultBase], ...] = (
    processes.LeaderKilled,
    processes.FollowerKilled,
    processes.TwoKilled,
    processes.AllKilled,
    processes.AllKilledInTurn,
    processes.ControllerKilled,
    processes.LeadingControllerKilled,
    processes.Zombie,
    processes.LeaderDozes,
    processes.FollowerDozes,
    processes.AllDoze,
    processes.PoliteStop,
    processes.PoliteStopAlone,
    processes.PoliteStopUncontrolled,
    processes.RollingRestart,
    processes.RollingKill,
    processes.CrashLoop,
    killed_clients.ClientsKilled,
    resources.OutOfMemory,
    resources.OutOfDescriptors,
    identities.BackAtOnce,
    identities.StartedTwice,
    identities.SameIdTwice,
    zookeeper.SessionExpired,
    zookeeper.SessionsExpireOften,
    zookeeper.ZooKeeperKilled,
    zookeeper.ZooKeeperRestarted,
    zookeeper.ZooKeeperAwayForLong,
    zookeeper.ZooKeeperPaused,
    answers.AnswersOfZooKeeperLost,
    answers.ZombieController,
    turned_back.ZooKeeperTurnedBack,
    network.LeaderCutFromFollowers,
    network.LeaderCutFromZooKeeper,
    network.LeaderCutFromAllButClients,
    network.LeaderUnheard,
    network.LeaderDeaf,
    network.PairCut,
    network.ClientsCutFromLeader,
    network.IsolationAndKill,
    network.AnswersLost,
    network.Resets,
    network.PacketsLost,
    network.HalfOpen,
    late_requests.StaleQueues,
    slow_network.Delayed,
    slow_network.Narrow,
    slow_network.ZooKeeperNarrow,
    system_calls.HeldUp,
    system_calls.TornWrite,
    system_calls.WritesFail,
    system_calls.SyncsFail,
    system_calls.SlowDisk,
    system_calls.ClockBehind,
    system_calls.ClockAhead,
    system_calls.ClockSwings,
    power.PowerLost,
    power.AllPowerLost,
    damage.TailCut,
    damage.BitFlipped,
    damage.IndexDamage,
    damage.IndexesZeroed,
    damage.IndexesCut,
    damage.IndexesRandom,
    damage.IndexesWrong,
    damage.CheckpointDamage,
    damage.CheckpointsCut,
    damage.CheckpointsRandom,
    damage.CheckpointsFromTheFuture,
    full_disks.LeaderDiskFull,
    full_disks.FollowerDiskFull,
    full_disks.ZooKeeperDiskFull,
    full_disks.ReadOnly,
    full_disks.WrongMeta,
    full_disks.Vanished,
    timestamps.OddTimestamps,
)


def catalogue(timing: Timing | None = None) -> Catalogue:
    """Return the factories of the faults of each row, in the catalogue's order. Durations and bounds follow the
    cluster's `timing`; None: the settings of a run's own cluster.
    """
    rows = dict.fromkeys(sorted({fault.row for fault in _FAULTS}, key=row_number))
    return {row: [partial(fault, timing) for fault in _FAULTS if fault.row == row] for row in rows}


def prerequisites() -> list[Prerequisite]:
    """Return new prerequisites of these faults for a cluster of the run's own, in the order in which to set them up."""
    return [Disks(), Namespaces(), Shim()]
