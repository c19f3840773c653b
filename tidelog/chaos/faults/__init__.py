"""The faults that can be made here, by the rows of the catalogue: A processes F1–F18, B network F19–F34, C ZooKeeper
F35–F42, D storage and clock F43–F55. What cannot be made, and why: docs/decisions/0017-proof.md.
"""

from __future__ import annotations

from functools import partial

from tidelog.chaos.fault import Catalogue, Furnishing
from tidelog.chaos.faults import (
    answers,
    damage,
    full_disks,
    identities,
    killed_clients,
    late_requests,
    network,
    power,
    processes,
    resources,
    slow_network,
    system_calls,
    timestamps,
    turned_back,
    zookeeper,
)
from tidelog.chaos.faults.disks import Disks
from tidelog.chaos.faults.harm import Harm, Timing
from tidelog.chaos.faults.namespaces import Namespaces
from tidelog.chaos.faults.shim import Shim
from tidelog.chaos.scenarios import row_number

_FAULTS: tuple[type[Harm], ...] = (
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
    """Each row with how to make its faults, in the catalogue's order; durations follow the cluster's `timing`."""
    rows = dict.fromkeys(sorted({fault.row for fault in _FAULTS}, key=row_number))
    return {row: [partial(fault, timing) for fault in _FAULTS if fault.row == row] for row in rows}


def furnishings() -> list[Furnishing]:
    """What a cluster of one's own is built upon for these faults, in the order in which it is to be set up."""
    return [Disks(), Namespaces(), Shim()]
