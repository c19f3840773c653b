"""Test that readers receive each offset once, and none at or above the high watermark (I7, I10)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.checker.judging import verdict_on_all
from tidelog.history.broker_events import BecomeLeader, HighWatermark
from tidelog.history.events import Event
from tidelog.history.group_operations import Assigned, CommitOk
from tidelog.history.operations import Read, TrimInvoked
from tidelog.model import TopicPartition
from verify.checker.findings import Finding
from verify.checker.invariant import Ending

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def read(*offsets: int, session: int = 1, hw: int = 99, t: int = 5, tp: TopicPartition = TP) -> Read:
    return Read(tp, session, hw, t, t + 1, [*offsets], [*offsets], [*offsets])


def found(key: str, *entries: tuple[str, Event], compacted: frozenset[str] = frozenset()) -> Sequence[Finding]:
    return verdict_on_all(entries, key, ending=Ending(compacted=compacted)).findings


def shown(*reads: Read, compacted: frozenset[str] = frozenset()) -> list[str]:
    return [each.says for each in found("I7", *(("r", each) for each in reads), compacted=compacted)]


def test_session_reads_consecutive_offsets_within_and_across_answers() -> None:
    assert not shown(read(3, 4), read(), read(5, 6))
    assert shown(read(3, 5)) == ["r received offset 5 after 3 in one session"]
    assert shown(read(3, 4), read(6)) == ["r received offset 6 after 4 in one session"]
    assert shown(read(3, 4), read(4, 5)) == ["r received offset 4 again after 4 in one session"]
    assert shown(read(3, 4, 2)) == ["r received offset 2 again after 4 in one session"]


def test_other_session_reader_or_partition_may_begin_at_any_offset() -> None:
    assert not shown(read(3, 4), read(9, session=2), read(7, tp=OTHER))
    assert not found("I7", ("r", read(3, 4)), ("s", read(3, 4)))


def test_compacted_topic_excuses_gaps_only() -> None:
    compacted = frozenset({"t"})
    assert not shown(read(3, 5), read(9), compacted=compacted)
    assert len(shown(read(3, 5), read(5), compacted=compacted)) == 1


@pytest.mark.parametrize(("offset", "asked", "forgiven"), [(9, 5, True), (8, 5, False), (9, 7, False)])
def test_reader_below_a_trim_misses_nothing(offset: int, asked: int, forgiven: bool) -> None:
    trim = ("t", TrimInvoked(TP, offset, asked))
    assert bool(found("I7", trim, ("r", read(3, 4)), ("r", read(9)))) != forgiven


# --- commits of groups ------------------------------------------------------------------------------------------------


def commit(offset: int, tp: TopicPartition = TP, generation: int = 1) -> CommitOk:
    return CommitOk("g", tp, offset, 8, 9, generation, "m")


JOINED: tuple[str, Event] = ("n", Assigned("g", "n", 1, [TP], 1))
FOUR: list[tuple[str, Event]] = [("m", read(0, 1)), JOINED, ("n", read(2, 3))]


def test_group_commits_only_offsets_that_its_members_received() -> None:
    assert not found("I7", *FOUR, ("m", commit(4)))
    assert not found("I7", ("m", commit(4)), *FOUR), "histories come in any order"
    (skipped,) = found("I7", *FOUR, ("m", commit(5)))
    assert skipped.says == "g committed 5, but none of its members received offset 4"
    assert "members: m, n" in skipped.operations
    (skipped,) = found("I7", ("m", read(0, session=1)), ("m", read(2, session=2)), ("m", commit(3)))
    assert "offset 1" in skipped.says
    assert len(found("I7", *FOUR, ("m", commit(4)), ("m", commit(1, OTHER)))) == 1, "of each partition"
    assert len(found("I7", ("m", read(0, 1)), ("stranger", read(2, 3)), ("m", commit(4)))) == 1


def test_non_member_may_commit_any_offset() -> None:
    assert not found("I7", ("m", commit(5, generation=-1)))


def test_group_may_miss_trimmed_or_compacted_records() -> None:
    late: list[tuple[str, Event]] = [("m", read(2, 3)), ("m", commit(4))]
    assert len(found("I7", *late)) == 1
    assert not found("I7", *late, ("admin", TrimInvoked(TP, 2, 3)))
    assert len(found("I7", *late, ("admin", TrimInvoked(TP, 1, 3)))) == 1
    assert not found("I7", *late, compacted=frozenset({"t"}))


def test_answer_has_no_record_at_or_above_its_high_watermark() -> None:
    assert len(found("I10", ("r", read(3, 4, hw=4)))) == 1
    assert not found("I10", ("r", read(3, 4, hw=5)))
    assert not found("I10", ("r", read(3, 4, hw=-1))), "where none was entries there is none"


def test_answer_names_only_a_high_watermark_that_a_broker_had() -> None:
    def named(hw: int, event: Event) -> int:
        return len(found("I10", ("1", event), ("r", read(hw=hw, t=5))))

    for had in (HighWatermark(6, TP, 1, 7), BecomeLeader(6, TP, 1, 9, 7)):
        assert (named(7, had), named(8, had)) == (0, 1)
    assert named(8, HighWatermark(6, OTHER, 1, 7)) == 0, "brokers that tell nothing prove nothing"
