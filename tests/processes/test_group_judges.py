"""The verdicts on groups, held to what they must not let pass: each test plants what a broken coordinator would do."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from tests.checker.judging import verdict_on
from tests.processes.harness.handovers import Kept, Processed, Turn, by_partition, handover_violations, unowned_s
from tests.processes.harness.members import assignments, turns
from tidelog.errors import (
    CoordinatorNotAvailableError,
    IllegalGenerationError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    RequestTimedOutError,
)
from tidelog.history.events import Event
from tidelog.history.group_operations import Assigned, CommitFailed, CommitOk, CommittedOk, CommitUnknown
from tidelog.model import TopicPartition
from verify.checker.outcomes import Outcome, commit_outcome, error_name

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


_S = 1_000_000_000


def commit(
    offset: int, invoked_s: float, done_s: float, outcome: Outcome = Outcome.OK, generation: int = -1
) -> CommitOk | CommitFailed | CommitUnknown:
    times = round(invoked_s * _S), round(done_s * _S)
    if outcome is Outcome.OK:
        return CommitOk("g", TP, offset, *times, generation)
    kind = CommitFailed if outcome is Outcome.FAILED else CommitUnknown
    return kind("g", TP, offset, "REBALANCE_IN_PROGRESS", *times, generation)


def fetched(offset: int, invoked_s: float, done_s: float) -> CommittedOk:
    return CommittedOk("g", TP, offset, round(invoked_s * _S), round(done_s * _S))


def assigned(member: str, generation: int, at_s: float, *tps: TopicPartition) -> Assigned:
    return Assigned("g", member, generation, tps, round(at_s * _S))


def violations(*reported: Event) -> list[str]:
    return [each.says for each in verdict_on(reported, "I17").findings]


COMMITS = [
    commit(10, 1, 2),
    commit(20, 3, 6),
    commit(30, 7, 8, Outcome.FAILED),
    commit(40, 9, 12, Outcome.UNKNOWN),
    commit(50, 20, 21),
]


@pytest.mark.parametrize(
    "fetches",
    [
        pytest.param([fetched(-1, 0, 0.5)], id="before everything"),
        pytest.param([fetched(-1, 0, 1.5), fetched(10, 0, 1.5)], id="while the first is under way, either"),
        pytest.param([fetched(10, 2.5, 2.6)], id="what is committed"),
        pytest.param([fetched(10, 4, 7), fetched(20, 4, 7)], id="two readers of one commit under way"),
        pytest.param([fetched(20, 10, 11), fetched(40, 12, 13)], id="an unknown outcome that counts later"),
        pytest.param([fetched(50, 30, 31)], id="an unknown outcome that never counts"),
    ],
)
def test_linearizable_register_histories_pass(fetches: list[CommittedOk]) -> None:
    assert violations(*COMMITS, *fetches) == []


@pytest.mark.parametrize(
    ("fetches", "words"),
    [
        pytest.param([fetched(10, 6.5, 6.6)], "after 20 was committed", id="the value of before"),
        pytest.param([fetched(-1, 6.5, 6.6)], "after 20 was committed", id="none after a success"),
        pytest.param([fetched(40, 10, 11), fetched(20, 12, 13)], "after 40 was read", id="back from what was read"),
        pytest.param([fetched(50, 10, 11)], "no client had committed", id="a value from the future"),
        pytest.param([fetched(30, 8.5, 9)], "no client had committed", id="a refused value"),
        pytest.param([fetched(15, 2.5, 2.6)], "no client had committed", id="a value that was never committed"),
    ],
)
def test_register_anomalies_are_found(fetches: list[CommittedOk], words: str) -> None:
    (found,) = violations(*COMMITS, *fetches)
    assert words in found


def test_groups_and_partitions_are_registers_of_their_own() -> None:
    elsewhere = [replace(each, group="h") for each in COMMITS] + [replace(each, tp=OTHER) for each in COMMITS]
    assert violations(*elsewhere, fetched(-1, 30, 31)) == []
    assert violations(*elsewhere, *COMMITS, fetched(-1, 30, 31))


def test_atomic_register_passes_and_one_with_two_copies_fails() -> None:
    """Against a simulation: requests take effect at one moment between their beginning and their end."""
    rng = random.Random(5)
    found_in_forgetful = 0
    for _ in range(200):
        effects: list[tuple[float, int | None, float, float]] = []
        for number in range(40):
            begin_s = number + rng.random()
            end_s = begin_s + 3 * rng.random()
            is_commit = rng.random() < 0.4
            effects.append((rng.uniform(begin_s, end_s), number if is_commit else None, begin_s, end_s))
        for forgetful in (False, True):
            reported: list[Event] = []
            value = before = -1
            for _, offset, begin_s, end_s in sorted(effects):
                if offset is not None and offset > value:
                    reported.append(commit(offset, begin_s, end_s))
                    before, value = value, offset
                elif offset is None:
                    shown = before if forgetful and rng.random() < 0.2 else value
                    reported.append(fetched(shown, begin_s, end_s))
            found = violations(*reported)
            assert forgetful or not found
            found_in_forgetful += bool(found)
    assert found_in_forgetful > 150


def test_refusals_before_a_write_differ_from_those_that_may_follow_it() -> None:
    for definite in (IllegalGenerationError, OffsetMetadataTooLargeError):
        assert commit_outcome([error_name(definite.code)]) is Outcome.FAILED
    for unknown in (NotCoordinatorError, CoordinatorNotAvailableError, RequestTimedOutError):
        assert commit_outcome([error_name(unknown.code)]) is Outcome.UNKNOWN


def test_a_stale_generation_that_was_accepted_is_found() -> None:
    generations = [assigned("a", 1, 0, TP), assigned("b", 2, 10, TP)]
    fine = [
        commit(1, 5, 6, generation=1),
        commit(2, 9, 11, generation=1),  # begun before the next generation was
        commit(3, 12, 13, Outcome.FAILED, generation=1),
        commit(4, 12, 13, generation=2),
        commit(5, 12, 13),  # from no member
    ]
    assert violations(*generations, *fine) == []
    (found,) = violations(*generations, *fine, commit(6, 12, 13, generation=1))
    assert "generation 1 was accepted" in found
    assert violations(commit(6, 12, 13, generation=1)) == []


def test_two_owners_in_one_generation_are_found() -> None:
    fine = [
        assigned("a", 1, 0, TP),
        assigned("b", 1, 0, OTHER),
        assigned("b", 2, 5, TP),
        assigned("b", 2, 6, TP),
        replace(assigned("c", 2, 5, TP), group="h"),
    ]
    assert violations(*fine) == []
    (found,) = violations(*fine, assigned("c", 2, 7, TP, OTHER))
    assert "b and c own it in generation 2" in found


# --- from owner to owner ---------------------------------------------------------------------------


def turn(member: str, since_s: float, until_s: float, *did: Processed | Kept) -> Turn:
    processed = [each for each in did if isinstance(each, Processed)]
    return Turn(TP, member, since_s, until_s, processed, [each for each in did if isinstance(each, Kept)])


def kept(offset: int, done_s: float, outcome: Outcome = Outcome.OK) -> Kept:
    return Kept(offset, outcome, done_s)


FIRST = turn("a", 0, 5, Processed(range(5), 1), kept(5, 2), Processed(range(5, 9), 3), kept(9, 4, Outcome.UNKNOWN))


@pytest.mark.parametrize("begin", [5, 9])
def test_ownership_that_starts_at_an_earlier_commit_passes(begin: int) -> None:
    second = turn("b", 6, 9, Processed(range(begin, 20), 7))
    assert list(handover_violations(TP, [second, FIRST], 20)) == []


@pytest.mark.parametrize(
    ("second", "end", "words"),
    [
        pytest.param(turn("b", 6, 9, Processed(range(10, 20), 7)), 20, "no member had processed 9 to 9", id="a gap"),
        pytest.param(turn("b", 6, 9, Processed(range(4, 20), 7)), 20, "and 5 was committed", id="too far back"),
        pytest.param(
            turn("b", 6, 9, Processed(range(5, 12), 7), Processed(range(13, 20), 8)), 20, "13 after 11", id="a leap"
        ),
        pytest.param(
            turn("b", 6, 9, Processed(range(5, 12), 7), Processed(range(11, 20), 8)), 20, "11 after 11", id="twice"
        ),
        pytest.param(turn("b", 6, 9, Processed(range(5, 20), 7)), 21, "it ends at 21", id="an unprocessed tail"),
        pytest.param(turn("b", 6, 9), 20, "processed to 9", id="an owner that does nothing"),
        pytest.param(turn("b", 2.5, 9, Processed(range(9, 20), 2.6)), 20, "5 to 8", id="a gap that is closed too late"),
    ],
)
def test_wrong_handovers_are_found(second: Turn, end: int, words: str) -> None:
    found = list(handover_violations(TP, [FIRST, second], end))
    assert any(words in each for each in found), found


def test_partition_that_no_member_read_is_found() -> None:
    assert list(handover_violations(TP, [], 0)) == []
    assert list(handover_violations(TP, [], 3))


def test_the_longest_time_without_an_owner_counts_to_the_end() -> None:
    turns = [turn("b", 6, 9), turn("a", 0, 4), turn("c", 1, 8), turn("d", 12, 13)]
    assert unowned_s(turns, 13.5) == 3
    assert unowned_s(turns, 20) == 7
    assert unowned_s([turn("a", 0, math.inf)], 20) == 0
    assert [each.member for each in by_partition(turns)[TP]] == ["a", "c", "b", "d"]


# --- diaries ---------------------------------------------------------------------------------------


def wrote(did: str, at_s: float, **what: object) -> dict[str, object]:
    return {"did": did, "at_s": at_s, **what}


DIARY: list[dict[str, object]] = [
    wrote("begins", 0),
    wrote("owns", 1, partitions=[0, 1], generation=1, member="x"),
    wrote("processed", 2, partition=0, first=0, last=4),
    wrote("committed", 3, offsets={"0": 5}),
    wrote("gives up", 4, partitions=[1]),
    wrote("owns", 5, partitions=[0, 2], generation=2, member="x"),
    wrote("processed", 6, partition=0, first=5, last=9),
    wrote("not committed", 7, offsets={"0": 10}, error="TimeoutError"),
    wrote("lost", 8, partitions=[0]),
]


def test_diary_lists_owners_and_their_operations() -> None:
    reported = [(each.generation, each.tps) for each in assignments("x", "g", "t", DIARY)]
    assert reported == [(1, [TP, OTHER]), (2, [TP, TopicPartition("t", 2)])]
    found = {each.tp.partition: each for each in turns("x", "t", DIARY, 20)}
    assert [(each.since_s, each.until_s) for _, each in sorted(found.items())] == [(1, 8), (1, 4), (5, 20)]
    assert [each.offsets for each in found[0].processed] == [range(5), range(5, 10)]
    assert found[0].kept == [Kept(5, Outcome.OK, 3), Kept(10, Outcome.UNKNOWN, 7)]


def test_partition_lost_without_a_revocation_ends_the_ownership() -> None:
    diary = [wrote("owns", 1, partitions=[0], generation=1), wrote("owns", 2, partitions=[], generation=2)]
    (turn_of_0,) = turns("x", "t", diary, 20)
    assert turn_of_0.until_s == 2


def test_paused_owner_loses_its_partitions_when_the_pause_begins() -> None:
    diary = [
        wrote("owns", 1, partitions=[0], generation=1),
        wrote("lost", 9, partitions=[0]),
        wrote("owns", 10, partitions=[0], generation=2),
        wrote("lost", 50, partitions=[0]),
    ]
    reported = [(turn.since_s, turn.until_s) for turn in turns("x", "t", diary, 60, slept_s=[3])]
    assert reported == [(1, 3), (10, 50)]
