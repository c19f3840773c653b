"""Test which evidence is no bite, and which bounds each fault checks, with constructed evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.chaos.faults.test_bite_detection import BEFORE, T0, T1, evidence, with_t0
from tidelog.history.broker_events import BecomeLeader, IsrChange, Session, Truncate
from verify.chaos.fault import Evidence, PartitionView
from verify.chaos.faults import catalogue, full_disks, identities, processes, resources, system_calls, zookeeper
from verify.chaos.faults.network import network, slow_network
from verify.chaos.faults.network.answers import AnswersOfZooKeeperLost
from verify.chaos.faults.support.bite_detection import DIVERGED
from verify.chaos.faults.support.fault_base import FaultBase
from verify.chaos.targets.zookeeper_proxy import BAD_VERSION, MULTI, SET_DATA, Fate, Request

S = 1_000_000_000
KINDS = {f"{row} {kind().name}": kind for row, kinds in catalogue().items() for kind in kinds}

#: Ten seconds without any effect.
QUIET = replace(evidence(BEFORE), injected=0, healed=10 * S, whole=12 * S, acknowledged=5_000, slowest_ms=9.0)
#: Broker 1 lost its session, its leaderships and its place in an ISR; the controller changed, and all requests waited.
NOTICED = replace(
    QUIET,
    views=[
        BEFORE,
        replace(with_t0(PartitionView(2, 9, (2, 3), 8)), broker_epochs={1: 11, 2: 12, 3: 13}, controller_epoch=5),
        replace(BEFORE, broker_epochs={}),
        replace(with_t0(PartitionView(2, 9, (2, 3), 8)), broker_epochs={1: 21, 2: 22, 3: 23}, controller_epoch=5),
    ],
    slowest_ms=9_999.0,
    longest_gap_ms=9_999.0,
)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_fault_without_an_effect_is_no_bite(kind: Callable[[], FaultBase]) -> None:
    fault = kind()
    assert fault.bit(QUIET) is None
    assert fault.broken(QUIET) is None
    vars(fault).update(victims=(1,), _victim=1)
    assert fault.bit(QUIET) is None
    assert fault.broken(QUIET) is None


#: The state of faults that did nothing. Any effect in the cluster has another cause.
NOT_DONE = [
    *(kind for kind in KINDS if kind.split()[0] in ("F19", "F20", "F21", "F22", "F23", "F24", "F25", "F26", "F27")),
    *(kind for kind in KINDS if kind.split()[0] in ("F28", "F29", "F30", "F31", "F32", "F39", "F40", "F41", "F42")),
    *(kind for kind in KINDS if kind.split()[0] in ("F11", "F12", "F14", "F15", "F16", "F18", "F34", "F37", "F38")),
    *(kind for kind in KINDS if kind.split()[0] in ("F43", "F44", "F45", "F46", "F47", "F48", "F49", "F50", "F51")),
    *(kind for kind in KINDS if kind.split()[0] in ("F52", "F53", "F54", "F55")),
]


@pytest.mark.parametrize("name", NOT_DONE)
def test_other_effects_are_no_bite_of_a_fault_that_did_nothing(name: str) -> None:
    fault = KINDS[name]()
    vars(fault).update(victims=(1,), _victim=1)
    assert fault.bit(NOTICED) is None


#: The state after F32: broker 1 was paused for ten seconds, requests waited for it, and packets were dropped too.
SLEPT = {"victims": (1,), "_woken_at": 10 * S, "_queued_bytes": 1_234, "_rules": [SimpleNamespace(packets=7)]}


@pytest.mark.parametrize(
    "removals",
    [
        {},
        {1: [Truncate(11 * S, T0, 3, "a failed disk")]},
        {1: [Truncate(9 * S, T0, 3, DIVERGED)]},
        {2: [Truncate(11 * S, T0, 3, DIVERGED)]},
    ],
    ids=["none", "for another reason", "before it woke up", "by another broker"],
)
def test_queued_requests_bite_only_if_late_records_were_removed(removals: dict[int, list[Truncate]]) -> None:
    fault = KINDS["F32 queued requests arrive late"]()
    vars(fault).update(SLEPT)
    assert fault.bit(replace(NOTICED, events=removals)) is None


def test_removed_late_records_are_a_bite_of_queued_requests() -> None:
    fault = KINDS["F32 queued requests arrive late"]()
    removed = replace(QUIET, events={1: [Truncate(10 * S + 1, T0, 3, DIVERGED), Truncate(11 * S, T1, 5, DIVERGED)]})
    assert fault.bit(removed) is None
    vars(fault).update({**SLEPT, "_queued_bytes": 0})
    assert fault.bit(removed) is None
    vars(fault).update(SLEPT)
    assert fault.bit(removed) == (
        f"broker 1 removed records that {T0.topic}/0's new leader does not have and 1 more; "
        "1,234 bytes of requests had waited for it"
    )


LOST_KINDS = ("an election", "a change of an ISR", "a registration")


def lost(opcode: int, answer: bytes = b"done") -> Request:
    """Return a write that ZooKeeper answered without delivery."""
    request = Request(1, opcode, b"", answer)
    request.answered.set()
    return request


@pytest.mark.parametrize("kind", LOST_KINDS)
def test_lost_answers_bite_only_if_each_kind_of_write_lost_one(kind: str) -> None:
    fault = KINDS["F40 answers of ZooKeeper lost"]()
    whole = {each: lost(MULTI) for each in LOST_KINDS}
    vars(fault).update(_lost=whole)
    assert fault.bit(QUIET) is not None
    vars(fault).update(_lost={each: request for each, request in whole.items() if each != kind})
    assert fault.bit(QUIET) is None
    vars(fault).update(_lost=whole | {kind: lost(SET_DATA, BAD_VERSION)})
    assert fault.bit(QUIET) is None


def test_refused_write_does_not_count_as_a_lost_answer() -> None:
    fault = AnswersOfZooKeeperLost()
    change = Request(1, SET_DATA, b"/brokers/topics/t/partitions/0/state")
    assert fault._judge(change) is Fate.LOSES_ANSWER
    assert fault._judge(change) is Fate.PASSES
    change.answer = BAD_VERSION
    change.answered.set()
    assert fault._judge(change) is Fate.LOSES_ANSWER


@pytest.mark.parametrize("name", [name for name in KINDS if name not in NOT_DONE])
def test_effect_in_the_cluster_is_a_bite_of_other_faults(name: str) -> None:
    fault = KINDS[name]()
    vars(fault).update(victims=(1,), _victim=1, _followed=T0)
    assert fault.bit(NOTICED) is not None


def made(kind: type[FaultBase], **known: object) -> FaultBase:
    fault = kind()
    vars(fault).update(known)
    return fault


#: One effect less than required, or too late; and one more, or in time.
ONE_LESS: Mapping[str, tuple[FaultBase, Evidence, Evidence]] = {
    **{
        f"F13 {kind.name}: four elections of five": (
            made(kind, _followed=T0),
            replace(QUIET, views=[BEFORE, with_t0(PartitionView(2, 3 + 4, (2, 3), 8))]),
            replace(QUIET, views=[BEFORE, with_t0(PartitionView(2, 3 + 5, (2, 3), 8))]),
        )
        for kind in (processes.RollingRestart, processes.RollingKill)
    },
    "F33 back when its session was over": (
        made(identities.BackAtOnce, victims=(1,)),
        replace(QUIET, views=[BEFORE, replace(BEFORE, t=5 * S, broker_epochs={1: 21, 2: 12, 3: 13})]),
        replace(QUIET, views=[BEFORE, replace(BEFORE, t=4 * S, broker_epochs={1: 21, 2: 12, 3: 13})]),
    ),
    "F36 two registrations of three": (
        made(zookeeper.SessionsExpireOften),
        replace(QUIET, views=[BEFORE, replace(BEFORE, broker_epochs={1: 21, 2: 22, 3: 13})]),
        replace(QUIET, views=[BEFORE, replace(BEFORE, broker_epochs={1: 21, 2: 22, 3: 23})]),
    ),
    "F52 a produce that was not slow": (
        made(system_calls.SlowDisk, _done={"writes_delayed": 3, "syncs_delayed": 0}),
        replace(QUIET, slowest_ms=299.0),
        replace(QUIET, slowest_ms=301.0),
    ),
}


@pytest.mark.parametrize(("fault", "less", "enough"), ONE_LESS.values(), ids=ONE_LESS.keys())
def test_counted_or_timed_effect_is_a_bite_from_its_limit_on(
    fault: FaultBase, less: Evidence, enough: Evidence
) -> None:
    assert fault.bit(less) is None
    assert fault.bit(enough) is not None


SESSION_LOST = replace(QUIET, views=[BEFORE, replace(BEFORE, broker_epochs={1: 21, 2: 12, 3: 13})])
ELECTIONS = replace(QUIET, views=[BEFORE, with_t0(PartitionView(1, 7, (1, 2, 3), 9))])
LATE_LEADER = replace(QUIET, events={2: [BecomeLeader(3 * S, T0, 4, 0, 0)]})
LATE_BACK = replace(QUIET, events={2: [Session(S, "suspended"), Session(9 * S, "connected")]})
RESTLESS = replace(QUIET, events={1: [IsrChange(t * S, T1, [1, 2], 5, 10 + t, True) for t in range(1, 6)]})

BROKEN: Mapping[str, tuple[FaultBase, Evidence]] = {
    "F8 its session ended": (made(processes.LeaderDozes, victims=(1,)), SESSION_LOST),
    "F11 too slow": (made(processes.PoliteStop, _took_ms=10_001.0, _marked=True), QUIET),
    "F11 no marker": (made(processes.PoliteStop, _took_ms=9.0), QUIET),
    "F12 too slow": (made(processes.PoliteStopAlone, _took_ms=10_001.0, _marked=True), QUIET),
    "F12 no marker": (made(processes.PoliteStopUncontrolled, _took_ms=9.0), QUIET),
    "F18 it ended": (made(resources.OutOfDescriptors, _unserved=60, _ended=True), QUIET),
    "F23 too many elections": (made(network.PairCut), ELECTIONS),
    "F24 the cluster noticed": (made(network.ClientsCutFromLeader, victims=(1,)), SESSION_LOST),
    "F26 the cluster noticed": (made(network.AnswersLost, victims=(1,)), SESSION_LOST),
    "F28 a restless ISR": (made(network.PacketsLost), RESTLESS),
    "F29 its session ended": (made(slow_network.Delayed, victims=(1,)), SESSION_LOST),
    "F34 the first was disturbed": (made(identities.StartedTwice, _victim=1), SESSION_LOST),
    "F34 the second lives on": (made(identities.SameIdTwice, _victim=1, _wrong="it still ran"), QUIET),
    "F35 late": (made(zookeeper.SessionExpired, victims=(1,), _ended_at=S), LATE_LEADER),
    "F37 late": (made(zookeeper.ZooKeeperKilled, _serves_since=6 * S), LATE_BACK),
    "F39 a session ended": (made(slow_network.ZooKeeperNarrow), SESSION_LOST),
    "F52 its session ended": (made(system_calls.SlowDisk, victims=(1,)), SESSION_LOST),
    "F53 it started": (made(full_disks.WrongMeta, _wrong="it still ran"), QUIET),
    "F54 its session ended": (made(system_calls.ClockAhead, victims=(1,)), SESSION_LOST),
}


@pytest.mark.parametrize(("fault", "seen"), BROKEN.values(), ids=BROKEN.keys())
def test_exceeded_bound_of_a_row_is_reported(fault: FaultBase, seen: Evidence) -> None:
    assert fault.broken(seen)


def test_bound_of_one_broker_does_not_apply_to_another() -> None:
    for fault in (made(processes.LeaderDozes, victims=(2,)), made(identities.StartedTwice, _victim=2)):
        assert fault.broken(SESSION_LOST) is None
    for kept in (
        made(processes.PoliteStop, _took_ms=9_999.0, _marked=True),
        made(resources.OutOfDescriptors, _unserved=1),
    ):
        assert kept.broken(QUIET) is None


async def test_vanished_directory_bites_although_its_broker_starts_slowly() -> None:
    logged = [[], [], ["3 logs are missing"]]
    fault = full_disks.Vanished()
    vars(fault).update(victims=(1,), _said=SimpleNamespace(lines=lambda pattern: logged.pop(0)))
    await fault._listen()
    assert fault.bit(QUIET) == "broker 1 logged: 3 logs are missing"
