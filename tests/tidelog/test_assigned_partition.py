"""Test an assigned partition: the state after each event, and what a change of the position replaces."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tidelog.fetched_batches import a_batch, unreadable_batch
from tests.tidelog.test_position_state import pairs
from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.fetch_buffer import FetchBuffer
from tidelog.client.consumer.fetching.position_state import (
    TRANSITIONS,
    AwaitingCommit,
    Event,
    Failed,
    Fetching,
    Resetting,
    Validating,
)
from tidelog.client.consumer.fetching.retry import NO_RETRY
from tidelog.client.metadata import Leader
from tidelog.errors import CorruptMessageError, InternalError, OffsetOutOfRangeError, TidelogError
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

P0 = TopicPartition("t", 0)
AT_EPOCH_5 = Leader(1, 5, "id")
AT_EPOCH_6 = Leader(2, 6, "id")


def fetch(partition: AssignedPartition, records: memoryview | None = None, *, epoch: int = 5) -> bool:
    found = a_batch(partition.fetch_offset, epoch=epoch) if records is None else records
    return partition.on_fetched(found, epoch, high_watermark=9, log_start_offset=0, check_crcs=True)


def in_state(name: str, *, reset_to: int | None = EARLIEST_TIMESTAMP) -> AssignedPartition:
    """Return a partition that came into this state by the usual events."""
    if name == "AwaitingCommit":
        return AssignedPartition(P0, reset_to, awaits_commit=True)
    partition = AssignedPartition(P0, None if name == "Failed" else EARLIEST_TIMESTAMP)
    if name in ("Validating", "Fetching"):
        partition.on_offset_found(3, 5)
    if name == "Fetching":
        partition.on_leader(AT_EPOCH_5)
        partition.on_validated(5)
    assert type(partition.state).__name__ == name
    return partition


#: The method for each event. `on_no_commit` is for two events; `reset_to` decides.
CAUSES: dict[Event, Callable[[AssignedPartition], object]] = {
    Event.COMMIT_FOUND: lambda partition: partition.on_commit_found(7, 5),
    Event.NO_COMMIT: lambda partition: partition.on_no_commit(),
    Event.NO_START: lambda partition: partition.on_no_commit(),
    Event.SEEK: lambda partition: partition.seek(7),
    Event.RESET: lambda partition: partition.reset(LATEST_TIMESTAMP),
    Event.OFFSET_FOUND: lambda partition: partition.on_offset_found(7, 5),
    Event.LEADER_CHANGED: lambda partition: partition.on_leader(AT_EPOCH_6),
    Event.LEADER_BEHIND: lambda partition: partition.on_leader_behind(30),
    Event.NO_ANSWER: lambda partition: partition.on_no_answer(),
    Event.VALIDATED: lambda partition: partition.on_validated(5),
    Event.DIVERGED: lambda partition: partition.on_diverged(2, 4, 6),
    Event.FETCHED: fetch,
    Event.REWOUND: lambda partition: partition.rewind(2),
}


def facts(partition: AssignedPartition) -> tuple[object, ...]:
    return partition.state, partition.buffer, partition.generation, partition.moves, partition.retry, partition.topic_id


#: `on_leader` looks at the state first, so that a leader which is seen in another state is no event.
CALLS = [pair for pair in pairs() if pair[1:] != ("LEADER_CHANGED", ".")]


@pytest.mark.parametrize(("before", "event", "follows"), CALLS)
def test_partition_follows_the_table_or_stays_as_it_was(before: str, event: str, follows: str) -> None:
    partition = in_state(before, reset_to=None if event == "NO_START" else EARLIEST_TIMESTAMP)
    at_start = facts(partition)
    if follows == ".":
        with pytest.raises(InternalError, match="may not occur"):
            CAUSES[Event[event]](partition)
        assert facts(partition) == at_start
    else:
        CAUSES[Event[event]](partition)
        # No record was read since the position was set, so that the divergence itself is known to be valid.
        assert type(partition.state).__name__ == ("Fetching" if event == "DIVERGED" else follows)


@pytest.mark.parametrize(
    ("state", "start"),
    [(AwaitingCommit(20), {"awaits_commit": True}), (Resetting(20), {})],
    ids=["in a group", "without a group"],
)
def test_partition_starts_with_the_timestamp_to_look_up(state: object, start: dict[str, bool]) -> None:
    assert AssignedPartition(P0, 20, **start).state == state  # type: ignore[arg-type]


def test_partition_without_a_start_fails() -> None:
    assert AssignedPartition(P0, None).state == Failed()


# --- the leader that must confirm a position --------------------------------------------------------


def test_position_without_an_epoch_needs_no_validation() -> None:
    partition = in_state("Resetting")
    partition.seek(3)
    assert partition.state == Validating()
    partition.on_leader(AT_EPOCH_5)
    assert partition.state == Fetching()


def test_position_with_an_epoch_is_validated_by_each_new_leader() -> None:
    partition = in_state("Validating")
    partition.on_leader(AT_EPOCH_5)
    assert partition.state == Validating()
    partition.on_validated(5)
    partition.on_leader(AT_EPOCH_5)
    assert partition.state == Fetching()
    partition.on_leader(AT_EPOCH_6)
    assert partition.state == Validating()


def test_leader_that_confirmed_the_position_need_not_do_it_again() -> None:
    partition = in_state("Fetching")
    partition.on_leader(AT_EPOCH_6)
    partition.on_leader(AT_EPOCH_5)
    assert partition.state == Fetching()


def test_first_fetch_answer_gives_the_position_an_epoch() -> None:
    partition = in_state("Resetting")
    partition.seek(3)
    partition.on_leader(AT_EPOCH_5)
    assert fetch(partition)
    partition.on_leader(AT_EPOCH_5)
    assert partition.state == Fetching()
    partition.on_leader(AT_EPOCH_6)
    assert partition.state == Validating()


def test_later_leader_is_looked_for_since_the_first_time() -> None:
    partition = in_state("Validating")
    partition.on_leader_behind(30)
    partition.on_leader_behind(40)
    assert partition.state == Validating(30)
    partition.on_no_answer()
    partition.on_leader_behind(50)
    assert partition.state == Validating(50)


def test_first_topic_id_is_kept_until_the_next_seek() -> None:
    partition = in_state("Fetching")
    partition.on_leader(Leader(1, 5, "another"))
    assert partition.topic_id == "id"
    partition.seek(3)
    assert partition.topic_id == ""
    partition.on_leader(Leader(1, 5, "another"))
    assert partition.topic_id == "another"


# --- a change of the position -----------------------------------------------------------------------


@pytest.mark.parametrize("event", [Event.SEEK, Event.RESET, Event.DIVERGED, Event.REWOUND])
def test_new_position_ends_failures_and_outdates_answers(event: Event) -> None:
    partition = in_state("Validating")
    partition.retry = NO_RETRY.after_failure(AT_EPOCH_5, 100)
    partition.is_alone = True
    partition.standing_error.set(OffsetOutOfRangeError("out"))
    generation = partition.generation
    CAUSES[event](partition)
    assert partition.generation > generation
    assert partition.retry is NO_RETRY and not partition.is_alone and partition.standing_error.error is None


def test_rewind_and_drop_are_not_moves() -> None:
    partition = in_state("Fetching")
    fetch(partition)
    moves = partition.moves
    partition.rewind(2)
    partition.drop()
    assert partition.moves == moves
    partition.set_back(1)
    assert partition.moves == moves + 1


def test_divergence_behind_read_records_is_validated_again() -> None:
    partition = in_state("Fetching")
    fetch(partition)
    partition.take_records(9)
    partition.on_leader(AT_EPOCH_6)
    partition.on_diverged(3, 4, 6)
    assert partition.state == Validating() and partition.position == 3


def test_unassigned_partition_ignores_answers() -> None:
    partition = in_state("Fetching")
    generation = partition.generation
    partition.on_unassigned()
    assert partition.generation == generation + 1 and partition.position == 3


# --- fetched records --------------------------------------------------------------------------------


def test_data_ends_failures_and_their_error() -> None:
    partition = in_state("Fetching")
    partition.retry = NO_RETRY.after_failure(AT_EPOCH_5, 100)
    partition.standing_error.set(OffsetOutOfRangeError("out"))
    assert fetch(partition)
    assert partition.retry is NO_RETRY and partition.standing_error.error is None
    assert partition.high_watermark == 9


def test_corrupt_answer_changes_nothing() -> None:
    partition = in_state("Fetching")
    partition.retry = NO_RETRY.after_failure(AT_EPOCH_5, 100)
    with pytest.raises(CorruptMessageError):
        fetch(partition, a_batch(3)[:-1])
    assert partition.retry.attempts == 1 and not partition.has_data and partition.high_watermark == -1


def test_unreadable_batch_sets_the_error_once_and_lasts_until_it_is_passed() -> None:
    partition = in_state("Fetching")
    fetch(partition, unreadable_batch(3))
    assert partition.take_records(9) == [] == partition.take_records(9)
    assert partition.standing_error.failures == 1 and partition.standing_error.error is not None
    assert partition.buffer is not None and not partition.buffer.has_space
    assert fetch(partition, a_batch(4))  # an answer that was in flight leaves the error
    assert partition.standing_error.error is not None
    assert partition.take_batches() is not None
    assert partition.standing_error.error is None and partition.position == 4
    assert [record.offset for record in partition.take_records(9)] == [4]


def test_refused_record_holds_the_partition_until_its_batch_is_taken() -> None:
    partition = in_state("Fetching")
    fetch(partition)
    (record,) = partition.take_records(1)
    generation, error = partition.generation, CorruptMessageError("not JSON")
    partition.refuse(record.offset, error)
    assert partition.position == partition.fetch_offset == record.offset
    assert partition.standing_error.error is error and partition.generation == generation + 1
    assert partition.buffer is not None and not partition.buffer.has_space
    assert partition.take_records(9) == [] and partition.standing_error.error is error
    assert partition.take_batches() is None  # the batch is fetched again for a reader of batches
    assert partition.standing_error.error is None and partition.buffer.has_space
    assert fetch(partition) and partition.take_batches() is not None


def test_batches_of_records_given_back_are_fetched_again() -> None:
    partition = in_state("Fetching")
    fetch(partition)
    records = partition.take_records(9)
    assert partition.buffer is not None
    partition.buffer.take_back(records)
    assert partition.take_batches() is None
    assert partition.fetch_offset == partition.position == 3


def test_paused_and_withheld_partitions_are_not_shown() -> None:
    partition = in_state("Fetching")
    assert partition.is_shown
    partition.paused = True
    assert not partition.is_shown
    partition.paused, partition.withheld = False, True
    assert not partition.is_shown


# --- any story --------------------------------------------------------------------------------------

STEPS = [*Event, "leader 5", "leader 6", "take", "take batches", "give back", "drop", "corrupt", "unassign"]


def act(partition: AssignedPartition, step: Event | str) -> None:
    if isinstance(step, Event):
        CAUSES[step](partition)
    elif step.startswith("leader"):
        partition.on_leader(AT_EPOCH_5 if step == "leader 5" else AT_EPOCH_6)
    elif step == "take":
        partition.take_records(1)
    elif step == "take batches":
        partition.take_batches()
    elif step == "give back":
        if partition.buffer is not None and (records := partition.take_records(2)):
            partition.buffer.take_back(records)
    elif step == "drop":
        partition.drop()
    elif step == "corrupt":
        fetch(partition, memoryview(b"\0" * 61))
    else:
        partition.on_unassigned()


@given(
    story=st.lists(st.sampled_from(STEPS), max_size=60),
    reset_to=st.sampled_from([None, EARLIEST_TIMESTAMP, 20]),
    in_group=st.booleans(),
)
def test_no_story_leaves_the_table(story: list[Event | str], reset_to: int | None, in_group: bool) -> None:
    partition = AssignedPartition(P0, reset_to, awaits_commit=in_group)
    for step in story:
        before, at_start = partition.state, facts(partition)
        try:
            act(partition, step)
        except TidelogError as error:
            assert isinstance(error, InternalError | CorruptMessageError)
            assert facts(partition)[1:] == at_start[1:]
            assert type(partition.state) is type(before)
        has_position = isinstance(partition.state, Validating | Fetching)
        assert has_position == (partition.buffer is not None) == (partition.position is not None)
        ways = {
            follows
            for event, table in TRANSITIONS.items()
            for state, follows in table.items()
            if state is type(before) and event is not Event.DIVERGED
        }
        # A divergence in a log of which nothing was read leads through Validating to Fetching.
        assert type(partition.state) in ways | {type(before)}
        assert partition.generation >= at_start[2]  # type: ignore[operator]
        if partition.position is not None:
            assert partition.position <= partition.fetch_offset
            assert partition.has_data or partition.position == partition.fetch_offset


def test_lag_may_be_read_while_the_position_is_reset() -> None:
    """Any thread may call `metrics`, and the event loop may take the buffer away at any moment."""
    partition = in_state("Fetching")
    fetch(partition)
    reads = [partition.buffer]

    class Resets(AssignedPartition):
        __slots__ = ()

        @property
        def buffer(self) -> FetchBuffer | None:
            return reads.pop() if reads else None

    assert partition.lag == 6
    partition.__class__ = Resets
    assert partition.lag == 6
    assert partition.lag is None
