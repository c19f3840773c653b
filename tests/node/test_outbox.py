"""The outbox keeps the newest message of each partition until it is answered."""

from __future__ import annotations

from node.controller.outbox import MAX_ENTRIES, MetadataBatch, Outbox, StateBatch, StopBatch
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import PartitionStateMessage, StopReplicaPartition


def state(partition: int, leader_epoch: int = 0) -> PartitionStateMessage:
    return PartitionStateMessage("t", partition, 1, 1, leader_epoch, (1,), 0, (1,))


def stop(partition: int) -> StopReplicaPartition:
    return StopReplicaPartition("t", partition, 0, True)


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def test_message_stays_in_the_outbox_until_it_is_answered() -> None:
    outbox = Outbox()
    assert outbox.empty
    outbox.put_states([state(0)])
    first = outbox.peek()
    assert first == outbox.peek() == StateBatch({tp(0): state(0)})
    outbox.answered(first)
    assert outbox.empty


def test_message_that_changed_in_flight_is_sent_too() -> None:
    outbox = Outbox()
    outbox.put_states([state(0), state(1)])
    batch = outbox.peek()
    assert batch is not None
    outbox.put_states([state(0, leader_epoch=1)])
    outbox.answered(batch)
    assert outbox.peek() == StateBatch({tp(0): state(0, leader_epoch=1)})


def test_leaders_are_sent_before_stops_and_stops_before_metadata() -> None:
    outbox = Outbox()
    outbox.put_metadata([state(0)])
    outbox.put_stops([stop(1)])
    outbox.put_states([state(0)])
    kinds = []
    while (batch := outbox.peek()) is not None:
        kinds.append(type(batch))
        outbox.answered(batch)
    assert kinds == [StateBatch, StopBatch, MetadataBatch]


def test_metadata_is_sent_between_elections() -> None:
    outbox = Outbox()
    outbox.put_states([state(0)])
    outbox.put_metadata([state(0)])
    first = outbox.peek()
    assert first == StateBatch({tp(0): state(0)})
    outbox.put_states([state(1)])
    outbox.put_metadata([state(1)])
    outbox.answered(first)
    metadata = outbox.peek()
    assert isinstance(metadata, MetadataBatch) and metadata.entries == {tp(0): state(0)}
    outbox.answered(metadata)
    second = outbox.peek()
    assert second == StateBatch({tp(1): state(1)}), "clients learn of a leader after the leader itself"
    outbox.answered(second)
    rest = outbox.peek()
    assert isinstance(rest, MetadataBatch) and rest.entries == {tp(1): state(1)}
    outbox.answered(rest)
    assert outbox.empty


def test_metadata_of_a_partition_waits_for_its_stop() -> None:
    """A broker without the StopReplica would set the log aside instead of deleting it."""
    outbox = Outbox()
    outbox.put_states([state(0), state(1)])
    first = outbox.peek()
    assert isinstance(first, StateBatch)
    outbox.put_stops([stop(2)])
    outbox.put_metadata([state(0), state(2)])
    outbox.put_states([state(1, leader_epoch=1)])
    outbox.answered(first)
    early = outbox.peek()
    assert isinstance(early, MetadataBatch)
    assert list(early.entries) == [tp(0)]
    outbox.answered(early)
    kinds = []
    while (batch := outbox.peek()) is not None:
        kinds.append(type(batch))
        outbox.answered(batch)
    assert kinds == [StateBatch, StopBatch, MetadataBatch]


def test_names_of_all_topics_are_sent_last_and_once() -> None:
    """A log whose topic is not among them is set aside, so that the broker must have deleted it before."""
    outbox = Outbox()
    outbox.put_states([state(0), state(1)])
    outbox.put_metadata([state(number) for number in range(MAX_ENTRIES + 1)], whole=True)
    outbox.put_stops([stop(MAX_ENTRIES + 2)])
    batches = []
    while (batch := outbox.peek()) is not None:
        batches.append(batch)
        outbox.answered(batch)
    assert [batch.whole for batch in batches if isinstance(batch, MetadataBatch)].count(True) == 1
    last = batches[-1]
    assert isinstance(last, MetadataBatch)
    assert last.whole
    outbox.put_metadata([state(0)])
    later = outbox.peek()
    assert isinstance(later, MetadataBatch)
    assert not later.whole


def test_metadata_added_in_flight_keeps_the_names_of_all_topics() -> None:
    outbox = Outbox()
    outbox.put_metadata([state(0)], whole=True)
    first = outbox.peek()
    assert first is not None
    outbox.put_metadata([state(1)])
    outbox.answered(first)
    second = outbox.peek()
    assert isinstance(second, MetadataBatch)
    assert second.whole


def test_live_brokers_alone_are_sent_after_the_leaders() -> None:
    outbox = Outbox()
    outbox.put_states([state(0)])
    first = outbox.peek()
    assert first is not None
    outbox.put_states([state(1)])
    outbox.put_metadata([])
    outbox.answered(first)
    assert isinstance(outbox.peek(), StateBatch)


def test_stop_and_leadership_of_a_partition_replace_each_other() -> None:
    outbox = Outbox()
    outbox.put_states([state(0)])
    outbox.put_stops([stop(0)])
    assert outbox.peek() == StopBatch({tp(0): stop(0)})
    outbox.put_states([state(0)])
    assert outbox.peek() == StateBatch({tp(0): state(0)})


def test_metadata_without_partitions_is_sent_once_for_many_changes() -> None:
    outbox = Outbox()
    outbox.put_metadata([])
    outbox.put_metadata([])
    batch = outbox.peek()
    assert batch == MetadataBatch({}, frozenset(), 2)
    outbox.put_metadata([])
    outbox.answered(batch)
    assert not outbox.empty, "the brokers changed while the request was in flight"
    again = outbox.peek()
    assert again is not None
    outbox.answered(again)
    assert outbox.empty


def test_deleted_topic_leaves_the_outbox_and_may_be_created_again() -> None:
    outbox = Outbox()
    outbox.put_metadata([state(0)])
    outbox.put_metadata([], ["t"])
    assert outbox.peek() == MetadataBatch({}, frozenset({"t"}), 2)
    outbox.put_metadata([state(0)])
    assert outbox.peek() == MetadataBatch({tp(0): state(0)}, frozenset(), 3)


def test_deletion_added_in_flight_is_kept() -> None:
    outbox = Outbox()
    outbox.put_metadata([state(0)], ["old"])
    batch = outbox.peek()
    assert batch is not None
    outbox.put_metadata([], ["t"])
    outbox.answered(batch)
    left = outbox.peek()
    assert isinstance(left, MetadataBatch)
    assert "t" in left.deleted_topics


def test_large_outbox_is_sent_in_bounded_requests() -> None:
    outbox = Outbox()
    everything = [state(partition) for partition in range(MAX_ENTRIES * 2 + 1)]
    outbox.put_states(everything)
    outbox.put_metadata(everything)
    seen = []
    while (batch := outbox.peek()) is not None:
        assert len(batch.entries) <= MAX_ENTRIES
        seen += list(batch.entries)
        outbox.answered(batch)
    assert sorted(seen) == sorted([tp(partition) for partition in range(len(everything))] * 2)
