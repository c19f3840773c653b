"""Test how the client reads responses to Metadata that tell less than they seem to."""

from __future__ import annotations

import pytest

from tidelog.errors import BrokerNotAvailableError, LeaderNotAvailableError
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.client.translation.metadata import METADATA
from tidelog.protocol.kafka.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic

VERSION = METADATA.versions(native.MetadataRequest(None)).last


def test_answer_for_all_topics_without_brokers_is_refused() -> None:
    with pytest.raises(BrokerNotAvailableError) as raised:
        METADATA.read(MetadataResponse(brokers=(), topics=()), native.MetadataRequest(None), VERSION)
    assert raised.value.retriable


def test_cluster_without_topics_has_brokers() -> None:
    broker = MetadataResponseBroker(node_id=1, host="h", port=9092)
    answer = METADATA.read(MetadataResponse(brokers=(broker,), topics=()), native.MetadataRequest(None), VERSION)
    assert answer == native.MetadataResponse("", -1, (native.BrokerAddress(1, "h", 9092),), ())


def test_rack_is_read_and_an_empty_one_is_none() -> None:
    racks = ("a", None, "")
    brokers = tuple(MetadataResponseBroker(node_id=1, host="h", port=1, rack=rack) for rack in racks)
    answer = METADATA.read(MetadataResponse(brokers=brokers, topics=()), native.MetadataRequest(()), VERSION)
    assert isinstance(answer, native.MetadataResponse)
    assert [each.rack for each in answer.brokers] == ["a", None, None]


def test_named_topics_have_errors_of_their_own() -> None:
    refused = MetadataResponseTopic(error_code=LeaderNotAvailableError.code, name="a", partitions=())
    answer = METADATA.read(MetadataResponse(brokers=(), topics=(refused,)), native.MetadataRequest(("a",)), VERSION)
    assert isinstance(answer, native.MetadataResponse)
    assert [(each.name, each.error_code) for each in answer.topics] == [("a", LeaderNotAvailableError.code)]
