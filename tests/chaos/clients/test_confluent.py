"""Test the adapters of confluent-kafka that need no broker: errors, identities, and the settings of a process."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message

from tests.chaos.clients.chaos_stage import World
from tidelog import errors
from tidelog.errors import TidelogError
from tidelog.history.history_files import history_path, read_history
from tidelog.history.operations import Client
from tidelog.model import ConsumerGroupMetadata, OffsetAndMetadata, RecordMetadata, TopicPartition
from verify.chaos.clients import clients_of
from verify.chaos.clients.confluent import consumer as consumer_module
from verify.chaos.clients.confluent.client_factory import ConfluentLibrary, confluent_clients_of
from verify.chaos.clients.confluent.errors import error_of
from verify.chaos.clients.confluent.group_identity import parse_identity
from verify.chaos.clients.confluent.producer import ConfluentRecord
from verify.chaos.load import Load, LoadTopic, Part
from verify.chaos.workload import Workload
from verify.checker.outcomes import DOCUMENTED, error_name

TP = TopicPartition("orders", 3)
TOPICS = (LoadTopic("orders", 2),)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (KafkaError.NOT_ENOUGH_REPLICAS, errors.NotEnoughReplicasError),
        (KafkaError.UNKNOWN, errors.UnknownServerError),
        (KafkaError._INVALID_DIFFERENT_RECORD, errors.InvalidRecordError),
        (KafkaError._MSG_TIMED_OUT, errors.TimeoutError),
        (KafkaError._TRANSPORT, errors.DisconnectedError),
        (KafkaError._AUTO_OFFSET_RESET, errors.OffsetOutOfRangeError),
        (KafkaError._FATAL, errors.InternalError),
    ],
)
def test_confluent_error_becomes_the_error_of_the_same_meaning(code: int, expected: type[TidelogError]) -> None:
    error = error_of(KafkaError(code, "the cause"), TP)
    assert type(error) is expected and str(error).startswith("orders-3: ") and "the cause" in str(error)


def test_unexpected_confluent_error_is_undocumented_for_the_checker() -> None:
    assert error_name(error_of(KafkaError(KafkaError._FATAL))) not in DOCUMENTED
    assert error_name(error_of(KafkaError(KafkaError._MSG_TIMED_OUT))) in DOCUMENTED


def test_generation_and_member_are_read_from_group_metadata() -> None:
    metadata = b"CGMDv2:" + (77).to_bytes(4, sys.byteorder, signed=True) + b"billing\0rdkafka-5f\0\x01"
    assert parse_identity(metadata) == ConsumerGroupMetadata("billing", 77, "rdkafka-5f")
    with pytest.raises(ValueError, match="another form"):
        parse_identity(b"CGMDv3:" + metadata[7:])


def test_delivery_report_settles_a_record() -> None:
    seen: list[object] = []
    record = ConfluentRecord()
    record.add_callback(seen.append)
    record.add_errback(seen.append)
    record.settle(None, Message("orders", 3, 17, timestamp=(1, 99)))
    repeated = ConfluentRecord()
    repeated.add_callback(seen.append)
    repeated.settle(None, Message("orders", 3, -1001, timestamp=(1, 99)))
    assert seen == [RecordMetadata("orders", 3, 17, 99), RecordMetadata("orders", 3, -1, 99)]

    refused = ConfluentRecord()
    refused.settle(KafkaError(KafkaError.NOT_ENOUGH_REPLICAS), Message("orders", 3))
    refused.add_errback(seen.append)
    assert isinstance(seen[-1], errors.NotEnoughReplicasError) and refused.may_be_stored()


async def test_confluent_process_has_names_and_producer_numbers_of_its_own() -> None:
    load = Load(TOPICS, processes=2, kafka_processes=1, rate=90)
    stage = World(*TOPICS)
    for process in range(load.processes):
        list(clients_of(stage.context, load, process))
    ours = set(stage.diaries)
    clients = list(confluent_clients_of(stage.context, load, process=2))
    names = {each.name for each in clients}
    assert names.isdisjoint(ours) and names == set(stage.diaries) - ours
    assert {name.removeprefix("confluent-2-") for name in names} == {
        "producer", "tail", "asker", "member-range", "member-cooperative-sticky",
    }  # fmt: skip
    header = stage.diaries["confluent-2-producer"].header
    assert header.idempotent and header.request_timeout_ms == 300_000
    with pytest.raises(ValueError, match="unique record ids are exhausted"):
        next(confluent_clients_of(stage.context, load, process=1_000))


async def test_confluent_process_without_brokers_ends_in_time(tmp_path: Path) -> None:
    load = Load(TOPICS, processes=1, kafka_processes=1, delivery_timeout_ms=2_000)
    history, ours = history_path(tmp_path, "confluent-1-producer"), history_path(tmp_path, "clients-0-tail")
    async with Workload(tmp_path, "127.0.0.1:1", load) as workload:
        assert len(workload.processes) == 2
        async with asyncio.timeout(60):
            while not (history.exists() and ours.exists()):  # noqa: ASYNC110  # processes do not wake us
                await asyncio.sleep(0.02)
    assert not workload.failures
    (header,) = read_history(history)
    assert isinstance(header, Client) and (header.name, header.acks) == ("confluent-1-producer", -1)


async def test_unsent_record_is_given_up_when_the_producer_closes() -> None:
    stage = World(*TOPICS)
    stage.context.servers = "127.0.0.1:1"
    producer = ConfluentLibrary(stage.context).producer("p", delivery_timeout_ms=60_000)
    sent = await producer.send("orders", b"x", partition=0, timestamp_ms=5)
    failed: list[TidelogError] = []
    sent.add_errback(failed.append)
    with pytest.raises(errors.TimeoutError, match="1 records have no outcome"):
        await producer.flush(0.05)
    await producer.close(0)
    assert [type(each) for each in failed] == [errors.ClosedError]


async def test_consumer_is_given_up_when_a_commit_never_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    class Hanging:
        def __init__(self, settings: object) -> None:
            pass

        def commit(self, **_: object) -> list[object]:
            assert released.wait(30)
            return []

        def consumer_group_metadata(self) -> bytes:
            return b"CGMDv2:" + bytes(4) + b"g\0m\0\x01"

        def close(self) -> None:
            pass

    monkeypatch.setattr(consumer_module, "Consumer", Hanging)
    monkeypatch.setattr(consumer_module, "_LATE_S", 0.05)
    with pytest.raises(consumer_module.HungConsumerError, match="did not return"):
        async with consumer_module.ConfluentConsumer("h:1", "c", group_id="g", default_api_timeout_ms=50) as consumer:
            with pytest.raises(errors.TimeoutError):
                await consumer.commit({TP: OffsetAndMetadata(7)}, timeout_ms=50)
            asyncio.get_running_loop().call_later(0.3, released.set)
            await consumer.poll(10, 1)


def test_servers_of_kafka_processes_are_the_kafka_listeners() -> None:
    load = Load(TOPICS, processes=2, kafka_processes=1)
    parts = [Part(load, "h:1", "/somewhere", process=process) for process in range(load.all_processes)]
    assert [each.has_kafka_clients for each in parts] == [False, False, True]
    assert Part.of_json(parts[2].to_json()) == parts[2]
