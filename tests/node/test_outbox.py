"""The newest word on a partition, until it is answered."""

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
    box = Outbox()
    assert box.empty
    box.put_states([state(0)])
    first = box.peek()
    assert first == box.peek() == StateBatch({tp(0): state(0)})
    box.answered(first)
    assert box.empty


def test_message_that_changed_in_flight_is_sent_too() -> None:
    box = Outbox()
    box.put_states([state(0), state(1)])
    batch = box.peek()
    assert batch is not None
    box.put_states([state(0, leader_epoch=1)])
    box.answered(batch)
    assert box.peek() == StateBatch({tp(0): state(0, leader_epoch=1)})


def test_leaders_are_sent_before_stops_and_stops_before_metadata() -> None:
    box = Outbox()
    box.put_metadata([state(0)])
    box.put_stops([stop(1)])
    box.put_states([state(0)])
    kinds = []
    while (batch := box.peek()) is not None:
        kinds.append(type(batch))
        box.answered(batch)
    assert kinds == [StateBatch, StopBatch, MetadataBatch]


def test_metadata_is_sent_between_elections() -> None:
    box = Outbox()
    box.put_states([state(0)])
    box.put_metadata([state(0)])
    first = box.peek()
    assert first == StateBatch({tp(0): state(0)})
    box.put_states([state(1)])
    box.put_metadata([state(1)])
    box.answered(first)
    told = box.peek()
    assert isinstance(told, MetadataBatch) and told.entries == {tp(0): state(0)}
    box.answered(told)
    second = box.peek()
    assert second == StateBatch({tp(1): state(1)}), "clients are told no more than brokers"
    box.answered(second)
    rest = box.peek()
    assert isinstance(rest, MetadataBatch) and rest.entries == {tp(1): state(1)}
    box.answered(rest)
    assert box.empty


def test_metadata_of_a_partition_waits_for_its_stop() -> None:
    """It would set it aside."""
    box = Outbox()
    box.put_states([state(0), state(1)])
    first = box.peek()
    assert isinstance(first, StateBatch)
    box.put_stops([stop(2)])
    box.put_metadata([state(0), state(2)])
    box.put_states([state(1, leader_epoch=1)])
    box.answered(first)
    early = box.peek()
    assert isinstance(early, MetadataBatch)
    assert list(early.entries) == [tp(0)]
    box.answered(early)
    kinds = []
    while (batch := box.peek()) is not None:
        kinds.append(type(batch))
        box.answered(batch)
    assert kinds == [StateBatch, StopBatch, MetadataBatch]


def test_names_of_all_topics_are_sent_last_and_once() -> None:
    """What is on its way out is to be deleted by then: otherwise it would be set aside."""
    box = Outbox()
    box.put_states([state(0), state(1)])
    box.put_metadata([state(number) for number in range(MAX_ENTRIES + 1)], whole=True)
    box.put_stops([stop(MAX_ENTRIES + 2)])
    batches = []
    while (batch := box.peek()) is not None:
        batches.append(batch)
        box.answered(batch)
    assert [batch.whole for batch in batches if isinstance(batch, MetadataBatch)].count(True) == 1
    last = batches[-1]
    assert isinstance(last, MetadataBatch)
    assert last.whole
    box.put_metadata([state(0)])
    later = box.peek()
    assert isinstance(later, MetadataBatch)
    assert not later.whole


def test_metadata_added_in_flight_keeps_the_names_of_all_topics() -> None:
    box = Outbox()
    box.put_metadata([state(0)], whole=True)
    first = box.peek()
    assert first is not None
    box.put_metadata([state(1)])
    box.answered(first)
    second = box.peek()
    assert isinstance(second, MetadataBatch)
    assert second.whole


def test_live_brokers_alone_are_sent_after_the_leaders() -> None:
    box = Outbox()
    box.put_states([state(0)])
    first = box.peek()
    assert first is not None
    box.put_states([state(1)])
    box.put_metadata([])
    box.answered(first)
    assert isinstance(box.peek(), StateBatch)


def test_stop_and_leadership_of_a_partition_replace_each_other() -> None:
    box = Outbox()
    box.put_states([state(0)])
    box.put_stops([stop(0)])
    assert box.peek() == StopBatch({tp(0): stop(0)})
    box.put_states([state(0)])
    assert box.peek() == StateBatch({tp(0): state(0)})


def test_metadata_without_partitions_is_sent_once_for_many_changes() -> None:
    box = Outbox()
    box.put_metadata([])
    box.put_metadata([])
    batch = box.peek()
    assert batch == MetadataBatch({}, frozenset(), 2)
    box.put_metadata([])
    box.answered(batch)
    assert not box.empty, "the brokers changed again while it was under way"
    again = box.peek()
    assert again is not None
    box.answered(again)
    assert box.empty


def test_deleted_topic_leaves_the_outbox_and_may_be_created_again() -> None:
    box = Outbox()
    box.put_metadata([state(0)])
    box.put_metadata([], ["t"])
    assert box.peek() == MetadataBatch({}, frozenset({"t"}), 2)
    box.put_metadata([state(0)])
    assert box.peek() == MetadataBatch({tp(0): state(0)}, frozenset(), 3)


def test_deletion_added_in_flight_is_kept() -> None:
    box = Outbox()
    box.put_metadata([state(0)], ["old"])
    batch = box.peek()
    assert batch is not None
    box.put_metadata([], ["t"])
    box.answered(batch)
    left = box.peek()
    assert isinstance(left, MetadataBatch)
    assert "t" in left.deleted_topics


def test_large_outbox_is_sent_in_bounded_requests() -> None:
    box = Outbox()
    everything = [state(partition) for partition in range(MAX_ENTRIES * 2 + 1)]
    box.put_states(everything)
    box.put_metadata(everything)
    seen = []
    while (batch := box.peek()) is not None:
        assert len(batch.entries) <= MAX_ENTRIES
        seen += list(batch.entries)
        box.answered(batch)
    assert sorted(seen) == sorted([tp(partition) for partition in range(len(everything))] * 2)
