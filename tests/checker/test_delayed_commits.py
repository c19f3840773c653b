"""Test which committed offsets a delayed commit of a Kafka client explains, and which losses stay violations (I17)."""

from __future__ import annotations

import pytest

from tidelog.history.events import Event
from tidelog.history.group_operations import Assigned, CommitInvoked, CommitOk, CommittedOk, CommitUnknown
from tidelog.history.operations import Client
from tidelog.model import TopicPartition
from verify.checker.checker import Checker
from verify.checker.invariant import Ending

TP = TopicPartition("t", 0)
MS = 1_000_000
KAFKA, OWN = Client("kafka", commit_copies_ms=50), Client("own")
#: Who records an event: the Kafka client or one of Tidelog's own.
KAFKAS, OWNS = True, False


def says(*entries: tuple[bool, Event]) -> list[str]:
    """Return the violations of I17 in these events."""
    checker = Checker()
    kafka, own = checker.begin(KAFKA), checker.begin(OWN)
    for is_kafka, event in entries:
        checker.take(kafka if is_kafka else own, event)
    return [each.says for each in checker.conclude(Ending()).only(["I17"]).findings]


def began(offset: int, t: int, generation: int = 1) -> CommitInvoked:
    return CommitInvoked("g", TP, offset, t * MS, generation)


def commit(offset: int, t0: int, t1: int, generation: int = 1) -> CommitOk:
    return CommitOk("g", TP, offset, t0 * MS, t1 * MS, generation)


def unanswered(offset: int, t0: int, t1: int, generation: int = 1) -> CommitUnknown:
    return CommitUnknown("g", TP, offset, "TIMEOUT", t0 * MS, t1 * MS, generation)


def fetched(offset: int, t0: int, t1: int) -> CommittedOk:
    return CommittedOk("g", TP, offset, t0 * MS, t1 * MS)


def assigned(member: str, generation: int, t: int) -> Assigned:
    return Assigned("g", member, generation, [TP], t * MS)


LOST = "the committed offset of group g was read as 5, after 9 was committed"


@pytest.mark.parametrize(
    ("client", "first", "expected"),
    [
        pytest.param(KAFKAS, unanswered(5, 0, 300), [], id="no answer"),
        pytest.param(KAFKAS, began(5, 0), [], id="the client was killed"),
        pytest.param(KAFKAS, commit(5, 0, 300), [], id="long enough for a second attempt"),
        pytest.param(KAFKAS, commit(5, 0, 49), [LOST], id="too short for a second attempt"),
        pytest.param(OWNS, unanswered(5, 0, 300), [LOST], id="our own client, no answer"),
        pytest.param(OWNS, commit(5, 0, 300), [LOST], id="our own client"),
    ],
)
def test_only_unanswered_commits_of_kafka_clients_may_come_late(
    client: bool, first: Event, expected: list[str]
) -> None:
    assert says((client, first), (client, commit(9, 400, 410)), (OWNS, fetched(5, 500, 510))) == expected


def test_delayed_commit_explains_no_other_offset() -> None:
    late = (KAFKAS, unanswered(5, 0, 300)), (KAFKAS, commit(7, 400, 410)), (KAFKAS, commit(9, 420, 430))
    for offset in (4, 7, -1):
        assert says(*late, (OWNS, fetched(offset, 500, 510)))[0].endswith(
            f"was read as {offset}, after 9 was committed"
        )


def test_delayed_commit_of_an_ended_generation_explains_nothing() -> None:
    late = (KAFKAS, assigned("m", 1, 0)), (KAFKAS, commit(5, 10, 310)), (OWNS, assigned("n", 2, 400))
    assert not says(*late[:2], (KAFKAS, commit(9, 390, 410)), *late[2:], (OWNS, fetched(5, 500, 510))), (
        "it came before the end"
    )
    assert says(*late, (OWNS, commit(9, 420, 430, 2)), (OWNS, fetched(5, 500, 510))) == [LOST]


def test_commit_without_an_answer_may_have_the_next_generation() -> None:
    late = (KAFKAS, assigned("m", 1, 0)), (KAFKAS, unanswered(5, 10, 310)), (KAFKAS, assigned("m", 2, 400))
    nine = (KAFKAS, commit(9, 420, 430, 2))
    assert not says(*late, nine, (OWNS, fetched(5, 500, 510)))
    third = (OWNS, assigned("n", 3, 415))
    assert says(*late, third, nine, (OWNS, fetched(5, 500, 510)))[-1] == LOST


def test_offset_that_was_read_is_as_good_as_one_that_was_committed() -> None:
    late = (KAFKAS, assigned("m", 1, 0)), (KAFKAS, unanswered(5, 10, 310)), (KAFKAS, assigned("m", 3, 400))
    seen = (KAFKAS, unanswered(9, 320, 380)), (OWNS, fetched(9, 420, 430))
    assert says(*late, *seen, (OWNS, fetched(5, 500, 510))) == [
        "the committed offset of group g was read as 5, after 9 was read"
    ]


def test_new_owner_continues_from_the_delayed_commit() -> None:
    late = (
        (KAFKAS, assigned("m", 1, 0)),
        (KAFKAS, unanswered(5, 10, 310)),
        (KAFKAS, commit(9, 320, 330)),
        (OWNS, assigned("n", 2, 400)),
    )
    goes_on = (OWNS, began(6, 410, 2)), (OWNS, commit(6, 410, 420, 2))
    assert not says(*late, *goes_on, (OWNS, fetched(6, 500, 510)))
    lower = (OWNS, began(4, 410, 2)), (OWNS, commit(4, 410, 420, 2))
    assert says(*late, *lower, (OWNS, fetched(4, 500, 510)))
    more = (OWNS, began(8, 430, 2)), (OWNS, commit(8, 430, 440, 2))
    assert says(*late, *goes_on, *more, (OWNS, fetched(6, 500, 510))), "8 was the last commit"


def test_overwritten_offset_does_not_return() -> None:
    late = (KAFKAS, unanswered(5, 0, 300)), (KAFKAS, commit(9, 400, 410)), (OWNS, fetched(5, 500, 510))
    assert says(*late, (OWNS, fetched(9, 520, 530))) == [
        "the committed offset of group g was read as 9, after 5 had replaced it"
    ], "the answer 5 came from a coordinator of the past"
    again = (KAFKAS, commit(9, 515, 518))
    assert not says(*late, again, (OWNS, fetched(9, 520, 530)))
    assert not says(*late, (KAFKAS, began(9, 515)), (OWNS, fetched(9, 520, 530)))
    assert not says(*late, (OWNS, fetched(5, 520, 530)))


def test_fetch_before_the_delayed_commit_sees_the_later_one() -> None:
    late = (KAFKAS, unanswered(5, 0, 300)), (KAFKAS, commit(9, 400, 410))
    assert not says(*late, (OWNS, fetched(9, 420, 430)), (OWNS, fetched(5, 500, 510)))
