"""Test the outcomes and time limits of every kind of operation in a history (I22)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.checker.judging import verdict_on
from tidelog.history.events import Event
from tidelog.history.group_operations import (
    CommitFailed,
    CommitInvoked,
    CommitOk,
    CommittedFailed,
    CommittedOk,
    CommitUnknown,
)
from tidelog.history.operations import (
    Client,
    EarliestFailed,
    EarliestOk,
    LatestFailed,
    LatestOk,
    LookUpFailed,
    LookUpOk,
    Overdue,
    ProduceFailed,
    ProduceInvoked,
    ProduceOk,
    ProduceUnknown,
    Read,
    ReadFailed,
    TrimOk,
    TrimUnknown,
)
from tidelog.model import TopicPartition
from verify.checker.findings import Finding

TP = TopicPartition("t", 0)
MS = 1_000_000
#: The client's time limit, including the grace of one second.
TIMEOUT_MS = 100
MOST = (TIMEOUT_MS + 1_000) * MS
BEGAN = 7


def found(*entries: Event) -> Sequence[Finding]:
    return verdict_on(entries, "I22", client=Client("client", request_timeout_ms=TIMEOUT_MS)).findings


def ended(t1: int, error: str = "REQUEST_TIMED_OUT") -> dict[str, Event]:
    """Return one operation of each kind that has a single event and began at `BEGAN`."""
    t = (BEGAN, t1)
    return {
        "read": Read(TP, 1, 0, *t, [], [], []),
        "failed read": ReadFailed(TP, error, *t, 1, 0),
        "latest": LatestOk(TP, 0, *t),
        "failed latest": LatestFailed(TP, error, *t),
        "earliest": EarliestOk(TP, 0, *t),
        "failed earliest": EarliestFailed(TP, error, *t),
        "look-up": LookUpOk(TP, 5, -1, *t),
        "failed look-up": LookUpFailed(TP, 5, error, *t),
        "trim": TrimOk(TP, 0, *t),
        "unknown trim": TrimUnknown(TP, 0, error, *t),
        "commit": CommitOk("g", TP, 1, *t),
        "failed commit": CommitFailed("g", TP, 1, error, *t),
        "unknown commit": CommitUnknown("g", TP, 1, error, *t),
        "committed": CommittedOk("g", TP, -1, *t),
        "failed committed": CommittedFailed("g", TP, error, *t),
    }


KINDS = list(ended(0))


@pytest.mark.parametrize("kind", KINDS)
def test_operation_that_ends_in_time_with_a_documented_error_passes(kind: str) -> None:
    assert not found(ended(BEGAN + MOST)[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_late_operation_is_reported_with_its_duration(kind: str) -> None:
    event = ended(BEGAN + MOST + MS)[kind]
    (late,) = found(event)
    assert late.says == f"{type(event).__name__} took 1101 ms; the limit is 1100 ms"
    assert late.operations and late.tp == TP


@pytest.mark.parametrize("kind", [kind for kind in KINDS if " " in kind])
def test_undocumented_error_is_reported(kind: str) -> None:
    event = ended(BEGAN + 1, "KEY_ERROR")[kind]
    (odd,) = found(event)
    assert odd.says == f"{type(event).__name__} ended with KEY_ERROR, which is not documented"


def test_only_the_late_one_of_several_produce_calls_is_reported() -> None:
    began = ProduceInvoked(TP, [1, 2], [5, 5], [0, 10])
    (late,) = found(began, ProduceOk(TP, [1, 2], [0, 1], [MOST + 1, MOST + 10]))
    assert "produce of 0:1 took" in late.says
    assert not found(began, ProduceOk(TP, [1, 2], [0, 1], [MOST, MOST + 10]))


def test_only_the_undocumented_one_of_several_errors_is_reported() -> None:
    began = ProduceInvoked(TP, [1, 2, 3], [5, 5, 5], [0, 0, 0])
    for kind in (ProduceFailed, ProduceUnknown):
        (odd,) = found(began, kind(TP, [1, 2, 3], ["REQUEST_TIMED_OUT", "KEY_ERROR", "TIMEOUT"], [9, 9, 9]))
        assert "produce of 0:2 ended with KEY_ERROR" in odd.says


def test_produce_call_hangs_if_its_client_goes_on_past_the_limit() -> None:
    began = ProduceInvoked(TP, [1], [5], [BEGAN])
    (hangs,) = found(began, LatestOk(TP, 0, BEGAN + MOST, BEGAN + MOST + 1))
    assert "produce of 0:1 hangs" in hangs.says
    assert not found(began, LatestOk(TP, 0, BEGAN + MOST - 1, BEGAN + MOST))


def test_operation_reported_as_overdue_hangs() -> None:
    (hangs,) = found(Overdue("read", TP, BEGAN, BEGAN + MOST + MS))
    assert hangs.says == "read hangs: the operation had not ended after 1101 ms"
    assert hangs.tp == TP and hangs.operations
    assert not found(Overdue("read", TP, BEGAN, BEGAN + MOST))


def test_client_that_waits_or_sends_more_goes_on() -> None:
    began, late = CommitInvoked("g", TP, 5, BEGAN), BEGAN + MOST + 1
    assert not found(began), "it was killed"
    for later in (Overdue("read", TP, late, late), ProduceInvoked(TP, [1], [5], [late])):
        (hangs,) = found(began, later)
        assert hangs.says.startswith("commit of 5 by g hangs")
    (hangs,) = found(ProduceInvoked(TP, [1], [5], [BEGAN]), CommitInvoked("g", TP, 5, late))
    assert hangs.says.startswith("produce of 0:1 hangs")


def test_commit_call_hangs_like_a_produce_call() -> None:
    began, later = CommitInvoked("g", TP, 5, BEGAN), LatestOk(TP, 0, BEGAN + MOST, BEGAN + MOST + 1)
    (hangs,) = found(began, later)
    assert hangs.says == "commit of 5 by g hangs: the operation never ended, but client continued"
    assert hangs.tp == TP and hangs.operations
    assert not found(began, LatestOk(TP, 0, BEGAN + MOST - 1, BEGAN + MOST))
    for end in (CommitOk("g", TP, 5, BEGAN, 9), CommitUnknown("g", TP, 5, "TIMEOUT", BEGAN, 9)):
        assert not found(began, end, later)
        assert found(began, CommitOk("g", TP, 6, BEGAN, 9), later), "another one ended"
