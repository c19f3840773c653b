"""A group's committed offsets, against a simple twin that reads the whole topic for each answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from cluster.groups.committed_offsets import CommittedOffsets
from tidelog.groups.offsets_topic import Commit
from tidelog.model import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
DAY_MS = 86_400_000


def at(offset: int, committed_ms: int = 0, expires_ms: int = -1) -> Commit:
    return Commit(offset, -1, "", committed_ms, expires_ms)


# --- writing and reading -----------------------------------------------------------------------------


def test_a_commit_counts_when_it_is_written_and_not_before() -> None:
    offsets = CommittedOffsets()
    assert not offsets
    offsets.begin([A])
    assert offsets.get(A) is None
    assert offsets, "a group of which something is being written is not to be forgotten"
    offsets.written({A: at(7)}, 100)
    assert offsets.get(A) == at(7)


def test_failed_commit_leaves_the_previous_offset() -> None:
    offsets = CommittedOffsets()
    offsets.begin([A])
    offsets.written({A: at(7)}, 100)
    offsets.begin([A])
    offsets.failed([A])
    assert offsets.get(A) == at(7)
    offsets.begin([B])
    offsets.failed([B])
    assert offsets.all() == {A: at(7)}


def test_commit_with_the_later_record_counts_in_any_order() -> None:
    offsets = CommittedOffsets()
    offsets.begin([A, B])
    offsets.begin([A])
    offsets.written({A: at(9)}, 102)
    offsets.written({A: at(7), B: at(7)}, 100)
    assert offsets.all() == {A: at(9), B: at(7)}


def test_an_offset_may_go_back_where_the_group_says_so() -> None:
    offsets = CommittedOffsets()
    for number, offset in enumerate((9, 3)):
        offsets.begin([A])
        offsets.written({A: at(offset)}, number)
    assert offsets.get(A) == at(3)


def test_a_tombstone_takes_away_what_is_older_and_nothing_that_is_newer() -> None:
    offsets = CommittedOffsets()
    offsets.begin([A])
    offsets.read(A, None, 101)
    offsets.written({A: at(7)}, 100)
    assert (offsets.get(A), offsets.all()) == (None, {})
    assert not offsets
    offsets.begin([A])
    offsets.written({A: at(8)}, 103)
    offsets.read(A, None, 102)
    assert offsets.get(A) == at(8)


# --- expiry ------------------------------------------------------------------------------------------


def expiring(
    commit: Commit, *, empty_since_ms: int | None = None, subscribed: set[str] | None = None
) -> Callable[[int], bool]:
    offsets = CommittedOffsets()
    offsets.read(A, commit, 0)
    members = set() if subscribed is None else subscribed
    return lambda now_ms: bool(offsets.expired(now_ms, DAY_MS, empty_since_ms=empty_since_ms, subscribed=members))


def test_commit_without_membership_expires_after_the_retention() -> None:
    expired = expiring(at(7, committed_ms=1000))
    assert not expired(1000 + DAY_MS - 1)
    assert expired(1000 + DAY_MS)


def test_offsets_are_retained_after_the_last_member_left() -> None:
    expired = expiring(at(7, committed_ms=1000), empty_since_ms=DAY_MS * 9)
    assert not expired(DAY_MS * 10 - 1)
    assert expired(DAY_MS * 10)


def test_manual_commit_of_an_empty_group_is_retained_from_its_time() -> None:
    expired = expiring(at(7, committed_ms=DAY_MS * 9 + 5), empty_since_ms=DAY_MS * 9)
    assert not expired(DAY_MS * 10)
    assert expired(DAY_MS * 10 + 5)


def test_only_offsets_of_unsubscribed_topics_expire() -> None:
    assert not expiring(at(7), subscribed={"a"})(DAY_MS * 100)
    assert expiring(at(7), subscribed={"b"})(DAY_MS)


def test_while_members_do_not_say_what_they_consume_nothing_expires() -> None:
    offsets = CommittedOffsets()
    offsets.read(A, at(7), 0)
    assert offsets.expired(DAY_MS * 100, DAY_MS, empty_since_ms=None, subscribed=None) == []


def test_an_old_record_expires_when_its_committer_said() -> None:
    expired = expiring(at(7, committed_ms=1000, expires_ms=5000), empty_since_ms=DAY_MS)
    assert not expired(4999)
    assert expired(5000)


def test_pending_commit_does_not_expire() -> None:
    offsets = CommittedOffsets()
    offsets.read(A, at(7), 0)
    offsets.begin([A])
    assert offsets.expired(DAY_MS, DAY_MS, empty_since_ms=None, subscribed=set()) == []
    offsets.failed([A])
    assert offsets.expired(DAY_MS, DAY_MS, empty_since_ms=None, subscribed=set()) == [A]


# --- against the twin --------------------------------------------------------------------------------


@dataclass
class Topic:
    """The twin: all records ever written, and which of them are known to be committed.

    under_way   batches that were appended and are undecided
    """

    records: list[tuple[TopicPartition, Commit | None]] = field(default_factory=list)
    committed: set[int] = field(default_factory=set)
    under_way: list[tuple[int, dict[TopicPartition, Commit]]] = field(default_factory=list)

    def append(self, commits: dict[TopicPartition, Commit | None]) -> int:
        first = len(self.records)
        self.records += commits.items()
        return first

    def answer(self) -> dict[TopicPartition, Commit]:
        found: dict[TopicPartition, Commit | None] = {}
        for number, (tp, commit) in enumerate(self.records):
            if number in self.committed:
                found[tp] = commit
        return {tp: commit for tp, commit in sorted(found.items()) if commit is not None}


TPS = [TopicPartition(topic, partition) for topic in "ab" for partition in range(2)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.lists(st.sampled_from(TPS), min_size=1, max_size=3, unique=True)),
        st.tuples(st.just("write_tombstones"), st.lists(st.sampled_from(TPS), min_size=1, max_size=2, unique=True)),
        st.tuples(st.sampled_from(["written", "failed"]), st.integers(0, 5)),
        st.tuples(st.just("expire"), st.integers(0, 40)),
    ),
    max_size=40,
)


@given(STEPS)
def test_offsets_match_the_topic_in_any_order_of_write_outcomes(
    steps: list[tuple[str, list[TopicPartition] | int]],
) -> None:
    offsets, topic = CommittedOffsets(), Topic()
    for now_ms, (kind, what) in enumerate(steps):
        if isinstance(what, list) and kind == "commit":
            commits = {tp: at(now_ms, committed_ms=now_ms) for tp in what}
            offsets.begin(commits)
            topic.under_way.append((topic.append({**commits}), commits))
        elif isinstance(what, list):
            write_tombstones(offsets, topic, what)
        elif kind == "expire":
            due = offsets.expired(now_ms, what, empty_since_ms=None, subscribed={"b"})
            busy = {tp for _, commits in topic.under_way for tp in commits}
            assert sorted(due) == [
                tp
                for tp, commit in topic.answer().items()
                if tp.topic == "a" and tp not in busy and now_ms - commit.committed_ms >= what
            ]
            write_tombstones(offsets, topic, due)
        elif what < len(topic.under_way):
            first, commits = topic.under_way.pop(what)
            if kind == "written":
                topic.committed |= set(range(first, first + len(commits)))
                offsets.written(commits, first)
            else:
                offsets.failed(commits)
        assert offsets.all() == topic.answer()
        assert [offsets.get(tp) for tp in TPS] == [topic.answer().get(tp) for tp in TPS]
        assert bool(offsets) == bool(topic.answer() or topic.under_way)


def write_tombstones(offsets: CommittedOffsets, topic: Topic, tps: list[TopicPartition]) -> None:
    """Commit tombstones at once, before all batches under way."""
    first = topic.append(dict.fromkeys(tps))
    topic.committed |= set(range(first, first + len(tps)))
    for number, tp in enumerate(tps, first):
        offsets.read(tp, None, number)


@given(STEPS)
def test_offsets_read_from_the_topic_equal_those_written(
    steps: list[tuple[str, list[TopicPartition] | int]],
) -> None:
    written, topic = CommittedOffsets(), Topic()
    for now_ms, (kind, what) in enumerate(steps):
        if not isinstance(what, list):
            continue
        if kind == "commit":
            commits = {tp: at(now_ms) for tp in what}
            written.begin(commits)
            written.written(commits, topic.append({**commits}))
        else:
            write_tombstones(written, topic, what)
    read = CommittedOffsets()
    for number, (tp, commit) in enumerate(topic.records):
        read.read(tp, commit, number)
    assert read.all() == written.all()
    assert bool(read) == bool(written)
