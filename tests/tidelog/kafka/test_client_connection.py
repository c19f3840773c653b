"""Test a client's connection over Kafka's protocol against a broker in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.tidelog.kafka.scripted_broker import KAFKA_APIS, TIDELOG_APIS, ScriptedBroker, ScriptedLine
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.errors import (
    DisconnectedError,
    InconsistentClusterIdError,
    OverloadedError,
    ProtocolError,
    TidelogError,
    TimeoutError,
    UnsupportedVersionError,
)
from tidelog.model import Endpoint
from tidelog.protocol.kafka.client import connection as client_connection
from tidelog.protocol.kafka.client.connection import MAX_IN_FLIGHT, Connection
from tidelog.protocol.kafka.messages.metadata import ApiVersionsRequest, MetadataResponse
from tidelog.protocol.kafka.messages.metadata import MetadataRequest as KafkaMetadataRequest
from tidelog.protocol.kafka.schema import Versions
from tidelog.protocol.messages import DeleteTopicsRequest, InitProducerIdRequest, MetadataRequest
from tidelog.protocol.messages import MetadataResponse as TypedMetadata
from tidelog.protocol.operator_messages import DescribeBrokerRequest

ENDPOINT = Endpoint("127.0.0.1", 1)
NO_TOPICS = MetadataRequest(())
#: What the client gets for NOTHING_KNOWN.
NOTHING = TypedMetadata("", -1, (), ())
NOTHING_KNOWN = MetadataResponse(brokers=(), topics=())


async def connect(broker: ScriptedBroker, cluster_id: str = "", timeout_ms: int = 1_000) -> Connection:
    return await Connection.open(
        ENDPOINT, client_id="t", timeout_ms=timeout_ms, cluster_id=cluster_id, dial=broker.dial, clock=VirtualClock()
    )


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def respond(broker: ScriptedBroker, number: int, throttle_time_ms: int = 0) -> None:
    """Answer the request with this number, after all that were sent have arrived."""
    await settled()
    header, _ = broker.received[number]
    broker.lines[-1].respond(header, MetadataResponse(brokers=(), topics=(), throttle_time_ms=throttle_time_ms))
    await settled()


# --- the handshake -------------------------------------------------------------------------------


@on_virtual_time
async def test_broker_of_tidelog_tells_its_id_and_cluster() -> None:
    broker = ScriptedBroker()
    connection = await connect(broker, cluster_id="c1")
    assert (connection.broker_id, connection.broker.cluster_id, connection.broker.has_extensions) == (7, "c1", True)
    assert connection.broker.apis == TIDELOG_APIS
    (introduction,) = broker.introduced
    assert (introduction.client_software_name, introduction.client_software_version) == ("tidelog", "0.1.0")


@on_virtual_time
async def test_broker_of_kafka_has_an_unknown_id_and_no_extensions() -> None:
    connection = await connect(ScriptedBroker(KAFKA_APIS), cluster_id="c1")
    assert (connection.broker_id, connection.broker.cluster_id, connection.broker.has_extensions) == (-1, "", False)


@on_virtual_time
async def test_broker_tells_the_kind_of_its_cluster() -> None:
    assert (await connect(ScriptedBroker())).cluster_kind == "Tidelog"
    kafka = ScriptedBroker(KAFKA_APIS)
    assert (await connect(kafka)).cluster_kind == "Apache Kafka (without KRaft)"
    kafka.features = {"kraft.version": 1}
    assert (await connect(kafka)).cluster_kind == "Apache Kafka (without KRaft)"
    kafka.features |= {"metadata.version": 27}
    assert (await connect(kafka)).cluster_kind == "Apache Kafka (metadata.version 27)"


@on_virtual_time
async def test_broker_of_another_cluster_is_refused() -> None:
    broker = ScriptedBroker()
    with pytest.raises(InconsistentClusterIdError, match="is a broker of cluster c1, but the others are of c2"):
        await connect(broker, cluster_id="c2")
    assert not broker.lines[0].is_open


@on_virtual_time
@pytest.mark.parametrize("newest", [0, 1, 2])
async def test_old_broker_is_asked_again_in_the_newest_version_that_it_lists(newest: int) -> None:
    broker = ScriptedBroker({**KAFKA_APIS, ApiVersionsRequest.api: Versions(0, newest)})
    connection = await connect(broker)
    assert connection.broker.apis[ApiVersionsRequest.api] == Versions(0, newest)
    assert len(broker.introduced) == 1


@on_virtual_time
async def test_handshake_without_answer_ends_at_the_timeout() -> None:
    broker = ScriptedBroker()
    broker.answers = False
    with pytest.raises(TimeoutError, match=r"ApiVersions to 127.0.0.1:1: no answer in 1000 ms"):
        await connect(broker)
    assert not broker.lines[0].is_open


# --- requests ------------------------------------------------------------------------------------


@on_virtual_time
async def test_request_is_sent_in_the_newest_version_of_both_sides() -> None:
    for newest, expected in ((12, 12), (9, 9), (99, 12)):
        broker = ScriptedBroker({**TIDELOG_APIS, KafkaMetadataRequest.api: Versions(0, newest)})
        connection = await connect(broker)
        answer = connection.send(NO_TOPICS, timeout_ms=100)
        await respond(broker, 0)
        assert await answer == NOTHING
        assert (broker.received[0][0].api_version, broker.received[0][0].client_id) == (expected, "t")


@on_virtual_time
async def test_answers_reach_their_requests_in_any_order() -> None:
    broker = ScriptedBroker()
    connection = await connect(broker)
    first, second = (connection.send(NO_TOPICS, timeout_ms=100) for _ in range(2))
    await respond(broker, 1)
    assert second.done() and not first.done()
    await respond(broker, 0)
    assert await first == await second == NOTHING


@on_virtual_time
async def test_request_times_out_alone_and_the_connection_stays() -> None:
    broker = ScriptedBroker()
    connection = await connect(broker)
    late, waiting = connection.send(NO_TOPICS, timeout_ms=100), connection.send(NO_TOPICS, timeout_ms=1_000)
    with pytest.raises(TimeoutError, match=r"METADATA to 127.0.0.1:1: no answer in 100 ms"):
        await late
    await respond(broker, 0)  # the late answer is ignored
    await respond(broker, 1)
    assert await waiting == NOTHING and not connection.closed


@on_virtual_time
async def test_requests_in_flight_fail_at_once_when_the_connection_ends() -> None:
    broker = ScriptedBroker()
    connection = await connect(broker)
    in_flight = [connection.send(NO_TOPICS, timeout_ms=60_000) for _ in range(3)]
    broker.lines[0].on_ended("the peer closed the connection")
    for answer in in_flight:
        with pytest.raises(DisconnectedError, match=r"connection to 127.0.0.1:1: the peer closed the connection"):
            await answer
    assert connection.closed
    with pytest.raises(DisconnectedError):
        await connection.send(NO_TOPICS, timeout_ms=100)


@on_virtual_time
@pytest.mark.parametrize(("protocol", "hint"), [("ZeroMQ", "listener KAFKA"), ("TLS", "without it"), ("HTTP", "")])
async def test_peer_of_another_protocol_is_named_with_a_hint(protocol: str, hint: str) -> None:
    broker = ScriptedBroker()
    broker.answers = False
    opening = asyncio.ensure_future(connect(broker))
    await settled()
    broker.lines[0].on_ended(f"the peer speaks {protocol}", protocol)
    with pytest.raises(ProtocolError, match=rf"^127.0.0.1:1: the peer speaks {protocol}.*{hint}"):
        await opening


@on_virtual_time
async def test_api_that_the_broker_lacks_is_not_sent() -> None:
    broker = ScriptedBroker(KAFKA_APIS)
    connection = await connect(broker)
    with pytest.raises(UnsupportedVersionError, match=r"needs a cluster of Tidelog, .* groups, .* work with any Kafka"):
        await connection.send(DescribeBrokerRequest(), timeout_ms=100)
    with pytest.raises(UnsupportedVersionError, match=r"does not know INIT_PRODUCER_ID$"):
        await connection.send(InitProducerIdRequest(), timeout_ms=100)
    connection = await connect(ScriptedBroker())
    with pytest.raises(UnsupportedVersionError, match=r"does not know INIT_PRODUCER_ID$"):
        await connection.send(InitProducerIdRequest(), timeout_ms=100)
    assert broker.received == []


@on_virtual_time
async def test_api_without_a_shared_version_is_not_sent() -> None:
    for offered in (Versions(0, 3), Versions(13, 20)):
        broker = ScriptedBroker({**KAFKA_APIS, KafkaMetadataRequest.api: offered})
        connection = await connect(broker)
        expected = f"supports versions 4 to 12, the broker at 127.0.0.1:1 versions {offered.first} to {offered.last}"
        with pytest.raises(UnsupportedVersionError, match=expected):
            await connection.send(NO_TOPICS, timeout_ms=100)
        assert broker.received == []


@on_virtual_time
async def test_malformed_answer_fails_its_request_only() -> None:
    broker = ScriptedBroker()
    connection = await connect(broker)
    malformed, waiting = (connection.send(NO_TOPICS, timeout_ms=1_000) for _ in range(2))
    await settled()
    broker.lines[0].send_frame(broker.received[0][0].correlation_id.to_bytes(4, "big") + b"\xff" * 9)
    with pytest.raises(ProtocolError):
        await malformed
    await respond(broker, 1)
    assert await waiting == NOTHING


@on_virtual_time
async def test_topic_id_that_is_no_uuid_is_not_sent() -> None:
    broker = ScriptedBroker({**KAFKA_APIS, 20: Versions(1, 6)})
    connection = await connect(broker)
    with pytest.raises(ProtocolError, match="'made up' is not a UUID"):
        await connection.send(DeleteTopicsRequest(("t",), 100, {"t": "made up"}), timeout_ms=100)
    assert broker.received == []


@on_virtual_time
async def test_defect_while_an_answer_is_read_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ScriptedBroker()
    connection = await connect(broker)
    answer = connection.send(NO_TOPICS, timeout_ms=60_000)
    monkeypatch.setattr(client_connection, "decode", None)
    await respond(broker, 0)
    with pytest.raises(TypeError):
        await asyncio.wait_for(answer, 1)


@on_virtual_time
async def test_frame_without_a_correlation_id_closes_the_connection() -> None:
    broker = ScriptedBroker()
    connection = await connect(broker)
    answer = connection.send(NO_TOPICS, timeout_ms=1_000)
    broker.lines[0].send_frame(b"abc")
    with pytest.raises(DisconnectedError, match="the broker sent a frame of 3 bytes"):
        await answer


@on_virtual_time
async def test_requests_in_flight_are_bounded_except_those_that_no_caller_awaits() -> None:
    broker = ScriptedBroker()
    connection = await connect(broker)
    in_flight = [connection.send(NO_TOPICS, timeout_ms=60_000) for _ in range(MAX_IN_FLIGHT)]
    with pytest.raises(OverloadedError, match=f"{MAX_IN_FLIGHT} requests are in flight"):
        await connection.send(NO_TOPICS, timeout_ms=60_000)
    in_flight[5].cancel()
    accepted = connection.send(NO_TOPICS, timeout_ms=60_000)
    await settled()
    assert len(broker.received) == MAX_IN_FLIGHT + 1 and not accepted.done()


# --- throttling ----------------------------------------------------------------------------------


@on_virtual_time
async def test_throttled_client_sends_nothing_until_the_time_has_passed() -> None:
    broker = ScriptedBroker()
    connection = await connect(broker)
    answer = connection.send(NO_TOPICS, timeout_ms=100)
    await respond(broker, 0, throttle_time_ms=500)
    assert await answer == NOTHING
    delayed = [connection.send(MetadataRequest((name,)), timeout_ms=2_000) for name in "abc"]
    await asyncio.sleep(0.499)
    assert len(broker.received) == 1
    await asyncio.sleep(0.002)
    assert [_topics(request) for _, request in broker.received[1:]] == ["a", "b", "c"]
    connection.send(MetadataRequest(("d",)), timeout_ms=100)
    await settled()
    assert len(broker.received) == 5, "the throttle has ended"
    assert not any(each.done() for each in delayed)
    await respond(broker, 1, throttle_time_ms=300)
    assert connection.longest_throttle_ms == 500


@on_virtual_time
async def test_later_throttle_also_delays_requests_that_wait() -> None:
    broker = ScriptedBroker()
    connection = await connect(broker)
    first, second = (connection.send(NO_TOPICS, timeout_ms=5_000) for _ in range(2))
    await respond(broker, 0, throttle_time_ms=500)
    connection.send(MetadataRequest(("a",)), timeout_ms=5_000)
    await asyncio.sleep(0.4)
    await respond(broker, 1, throttle_time_ms=500)
    await asyncio.sleep(0.4)
    assert len(broker.received) == 2
    await asyncio.sleep(0.101)
    assert len(broker.received) == 3
    assert await first == await second


class BusyClock(VirtualClock):
    """A clock that goes on while the loop is busy, so that timers are late."""

    busy_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.busy_ms


@on_virtual_time
async def test_request_after_a_throttle_stays_behind_those_that_waited() -> None:
    broker, clock = ScriptedBroker(), BusyClock()
    connection = await Connection.open(ENDPOINT, client_id="t", timeout_ms=1_000, dial=broker.dial, clock=clock)
    answer = connection.send(NO_TOPICS, timeout_ms=100)
    await respond(broker, 0, throttle_time_ms=500)
    assert await answer == NOTHING
    for name in "ab":
        connection.send_no_reply(MetadataRequest((name,)), timeout_ms=2_000)
        clock.busy_ms = 600
    await asyncio.sleep(0.501)
    assert [_topics(request) for _, request in broker.received[1:]] == ["a", "b"]


@on_virtual_time
async def test_requests_that_wait_for_the_end_of_a_throttle_are_bounded() -> None:
    broker = ScriptedBroker()
    connection = await connect(broker)
    answer = connection.send(NO_TOPICS, timeout_ms=100)
    await respond(broker, 0, throttle_time_ms=60_000)
    assert await answer == NOTHING
    for _ in range(MAX_IN_FLIGHT):
        connection.send_no_reply(NO_TOPICS, timeout_ms=100)
    with pytest.raises(OverloadedError, match="because the broker throttles"):
        connection.send_no_reply(NO_TOPICS, timeout_ms=100)


@on_virtual_time
async def test_connection_that_closes_while_throttled_sends_nothing() -> None:
    broker = ScriptedBroker()
    connection = await connect(broker)
    answer = connection.send(NO_TOPICS, timeout_ms=100)
    await respond(broker, 0, throttle_time_ms=500)
    await answer
    delayed = connection.send(NO_TOPICS, timeout_ms=2_000)
    connection.close()
    with pytest.raises(TidelogError):
        await delayed
    await asyncio.sleep(1)
    assert len(broker.received) == 1


def _topics(request: Any) -> str:
    return "".join(each.name for each in request.topics)


# --- hosts with several addresses ----------------------------------------------------------------


class Host:
    """A host of whose addresses some drop all packets, some refuse, and the others answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **addresses: str) -> None:
        self.behaviour = addresses
        self.broker = ScriptedBroker()
        self.dialled: list[tuple[str, float]] = []
        monkeypatch.setattr("tidelog.protocol.kafka.client.connection.resolve", self.resolve)

    async def resolve(self, host: str) -> tuple[str, ...]:
        return tuple(self.behaviour)

    def dial(
        self, address: Endpoint, on_frame: Callable[[memoryview], None], on_ended: Callable[[str], None]
    ) -> ScriptedLine:
        loop = asyncio.get_running_loop()
        self.dialled.append((address.host, loop.time()))
        behaviour = self.behaviour[address.host]
        self.broker.answers = behaviour == "answers"
        if behaviour == "refuses":
            loop.call_soon(on_ended, "cannot connect: Connection refused")
        return self.broker.dial(address, on_frame, on_ended)

    async def connect(self, timeout_ms: int) -> str:
        """Return the address of the last connection."""
        connection = await Connection.open(
            Endpoint("somewhere", 1), client_id="t", timeout_ms=timeout_ms, dial=self.dial, clock=VirtualClock()
        )
        connection.close()
        return self.dialled[-1][0]


@on_virtual_time
async def test_address_that_never_answers_leaves_the_others_their_share_of_time() -> None:
    with pytest.MonkeyPatch.context() as patch:
        host = Host(patch, a="swallows", b="refuses", c="swallows", d="answers")
        start_s = asyncio.get_running_loop().time()
        assert await host.connect(12_000) == "d"
        assert [(address, round(at - start_s, 2)) for address, at in host.dialled] == [
            ("a", 0), ("b", 3), ("c", 3), ("d", 7.5),
        ]  # fmt: skip


@on_virtual_time
async def test_without_an_address_that_answers_the_whole_time_is_used() -> None:
    with pytest.MonkeyPatch.context() as patch:
        start_s = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await Host(patch, a="swallows", b="swallows").connect(10_000)
        assert asyncio.get_running_loop().time() - start_s == pytest.approx(10, abs=0.01)
        with pytest.raises(DisconnectedError, match="somewhere:1: cannot connect: Connection refused"):
            await Host(patch, a="swallows", b="refuses").connect(10_000)
