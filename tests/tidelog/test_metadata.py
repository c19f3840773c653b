"""Test the client's view of the cluster, which is merged from answers that may be out of date."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.metadata import ClusterView, Leader
from tidelog.model import Endpoint
from tidelog.protocol.messages import BrokerAddress, MetadataResponse, PartitionMetadata, TopicMetadata

BROKERS = (BrokerAddress(1, "a", 1), BrokerAddress(2, "b", 2))


def answer(
    leader: int, epoch: int, topic_id: str = "id", brokers: tuple[BrokerAddress, ...] = BROKERS
) -> MetadataResponse:
    partition = PartitionMetadata(0, 0 if leader > 0 else 5, leader, epoch, (1, 2), (1, 2))
    return MetadataResponse("c", 1, brokers, (TopicMetadata("t", 0, topic_id, False, (partition,)),))


def test_the_first_answer_is_taken_as_it_is() -> None:
    view = ClusterView().merged(answer(1, 3))
    assert view.leader_of("t", 0) == Leader(1, 3)
    assert (view.cluster_id, view.controller_id, view.brokers[2]) == ("c", 1, Endpoint("b", 2))
    assert (view.partition_count("t"), view.partition_count("u"), view.version) == (1, 0, 1)


def test_racks_are_those_of_the_last_answer_with_brokers() -> None:
    racked = tuple(replace(broker, rack=rack) for broker, rack in zip(BROKERS, ("a", None), strict=True))
    view = ClusterView().merged(answer(1, 3, brokers=racked))
    assert view.racks == {1: "a"}
    assert view.merged(answer(1, 3, brokers=())).racks == {1: "a"}
    assert view.merged(answer(1, 3)).racks == {}


def test_an_older_epoch_does_not_replace_a_newer_one() -> None:
    assert ClusterView().merged(answer(2, 4)).merged(answer(1, 3)).leader_of("t", 0) == Leader(2, 4)


def test_the_same_epoch_may_lose_its_leader() -> None:
    assert ClusterView().merged(answer(2, 4)).merged(answer(-1, 4)).leader_of("t", 0) is None


def test_recreated_topic_starts_its_epochs_again() -> None:
    assert ClusterView().merged(answer(2, 4)).merged(answer(1, 0, "other")).leader_of("t", 0) == Leader(1, 0)


def test_last_answer_counts_for_two_topic_ids_of_one_name() -> None:
    """If the first id were never accepted again, one answer of a broker that lags would hide the topic for ever."""
    view = ClusterView().merged(answer(1, 0, "new")).merged(answer(2, 4, "old")).merged(answer(1, 0, "new"))
    assert (view.leader_of("t", 0), view.topics["t"].topic_id) == (Leader(1, 0), "new")


def test_a_leader_that_is_not_among_the_brokers_is_none() -> None:
    assert ClusterView().merged(answer(2, 4, brokers=BROKERS[:1])).leader_of("t", 0) is None


def test_a_broker_that_knows_nothing_yet_takes_nothing_away() -> None:
    view = ClusterView().merged(answer(2, 4)).merged(MetadataResponse("", -1, (), (TopicMetadata("t", 3),)))
    assert view.leader_of("t", 0) == Leader(2, 4)
    assert view.refused == {"t": 3}
    assert view.merged(answer(2, 4)).refused == {}
    assert view.without("t").partition_count("t") == 0


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 5))))
def test_epochs_never_go_back(answers: list[tuple[int, int]]) -> None:
    view, highest = ClusterView(), -1
    for leader, epoch in answers:
        view = view.merged(answer(leader, epoch))
        highest = max(highest, epoch)
        known = view.leader_of("t", 0)
        assert known is not None and known.epoch == highest
