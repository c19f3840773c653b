"""Test the connections of the simulated network: TCP streams of clients, and ZeroMQ messages between brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from random import Random

import pytest

from node.kafka.server_socket import ServerSocket
from tidelog.model import Endpoint
from verify.simulation.cluster.network import Network
from verify.simulation.cluster.tcp_streams import SimulatedTcpLine, serve
from verify.simulation.cluster.zeromq_messages import SimulatedDealer, SimulatedRouter
from verify.simulation.timeline import NS_PER_S, Process, Timeline

CLIENTS, BROKERS = Endpoint("server", 9092), Endpoint("server", 9093)


class Stream(asyncio.BufferedProtocol):
    """The server's protocol: it returns what it receives, and notes what happens.

    heard   the bytes that have arrived
    stays   whether the connection stays after the client has ended its stream
    """

    def __init__(self, stage: Stage, buffer_size: int) -> None:
        self.stage = stage
        self.heard = b""
        self.stays = False
        self.buffer = bytearray(buffer_size)
        stage.streams.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        assert transport.get_extra_info("socket") is None
        assert transport.get_extra_info("peername")[0] == "client"
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.heard += self.buffer[:nbytes]
        self.transport.write(self.buffer[:nbytes])

    def eof_received(self) -> bool:
        self.stage.note("server: end of stream")
        return self.stays

    def connection_lost(self, exc: Exception | None) -> None:
        self.stage.note(f"server: lost ({exc})" if exc else "server: closed")


class Stage:
    """A client's and a server's machine, whose server accepts both kinds of connections.

    frames, answers   what has arrived at the client over TCP, and over ZeroMQ
    noted             what has happened to the connections, in order
    ended_s           when a line of the client has ended
    """

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.network = Network(self.timeline, Random(1))
        self.failures: list[str] = []
        self.client = self.network.machine("client")
        self.server = self.network.machine("server")
        self.client_process, self.process = self._process("client"), self._process("server")
        self.client.run(self.client_process)
        self.server.run(self.process)
        self.streams: list[Stream] = []
        self.frames: list[bytes] = []
        self.answers: list[bytes] = []
        self.noted: list[str] = []
        self.ended_s = -1.0
        self.buffer_size = 64 * 1024

    def _process(self, name: str) -> Process:
        return Process(self.timeline, name, Random(1), self.failures.append)

    def note(self, text: str) -> None:
        self.noted.append(text)

    def _ended(self, reason: str = "") -> None:
        self.ended_s = self.timeline.now_ns / NS_PER_S
        self.note(f"client: {reason}" if reason else "client: ended")

    def listen(self) -> list[ServerSocket]:
        """Bind both endpoints, and return the one for TCP."""
        sockets: list[ServerSocket] = []
        routers: list[SimulatedRouter] = []

        def echo(peer: bytes, frames: list[memoryview]) -> None:
            routers[0].send(peer, list(frames))

        async def bind() -> None:
            sockets.append(await serve(self.network, self.process, CLIENTS, lambda: Stream(self, self.buffer_size)))
            router = SimulatedRouter(self.network, self.process, BROKERS, echo, lambda: None, lambda: None)
            routers.append(router)

        self.process.start(bind())
        self.run(0.01)
        return sockets

    def dial(self) -> SimulatedTcpLine:
        frame = lambda frame: self.frames.append(bytes(frame))  # noqa: E731
        return SimulatedTcpLine(self.network, self.client, self.client_process, CLIENTS, frame, self._ended)

    def connected(self) -> tuple[SimulatedTcpLine, Stream]:
        """Return both ends of a TCP connection."""
        self.listen()
        line = self.dial()
        self.run(0.1)
        return line, self.streams[-1]

    def run(self, seconds: float) -> None:
        self.timeline.run(self.timeline.now_ns + round(seconds * NS_PER_S))

    def power_off(self) -> None:
        self.server.up = False
        self.process.kill()
        self.network.hang_up(self.server)


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.timeline.end()
    assert not stage.failures


def framed(body: bytes) -> list[bytes]:
    return [len(body).to_bytes(4, "big"), body]


def test_frames_pass_whole_and_in_order_even_before_the_connection_exists(stage: Stage) -> None:
    stage.listen()
    line = stage.dial()
    bodies = [b"first", b"", b"x" * 300_000, b"last"]
    for body in bodies:
        line.send(framed(body))
    assert not stage.streams
    stage.run(1)
    assert stage.frames == bodies
    assert stage.streams[0].heard == b"".join(part for body in bodies for part in framed(body))


def test_connection_without_a_listener_is_refused(stage: Stage) -> None:
    stage.dial()
    stage.run(1)
    assert stage.noted == ["client: cannot connect: Connection refused"]


def test_closed_listener_keeps_its_connections_and_refuses_others(stage: Stage) -> None:
    (socket,) = stage.listen()
    line = stage.dial()
    stage.run(0.1)
    socket.close()
    stage.dial()
    line.send(framed(b"still here"))
    stage.run(1)
    assert stage.noted == ["client: cannot connect: Connection refused"]
    assert stage.frames == [b"still here"]


def test_taken_endpoint_is_refused(stage: Stage) -> None:
    stage.listen()
    failed: list[str] = []

    async def again() -> None:
        try:
            await serve(stage.network, stage.process, CLIENTS, lambda: Stream(stage, 1))
        except OSError as error:
            failed.append(str(error))

    stage.process.start(again())
    stage.run(0.1)
    assert failed and "server:9092" in failed[0]


def test_bytes_that_arrive_while_reading_is_paused_wait_for_the_protocol(stage: Stage) -> None:
    stage.buffer_size = 7
    line, stream = stage.connected()
    stage.process.call_soon(stream.transport.pause_reading)
    stage.run(0.1)
    line.send(framed(b"more than seven bytes"))
    line.close()
    stage.run(1)
    assert (stream.heard, stage.noted) == (b"", [])
    stage.process.call_soon(stream.transport.resume_reading)
    stage.run(1)
    assert stream.heard == b"".join(framed(b"more than seven bytes"))
    assert stage.noted == ["server: end of stream", "server: closed"]


def test_protocol_may_stay_after_the_end_of_the_stream(stage: Stage) -> None:
    line, stream = stage.connected()
    stream.stays = True
    line.close()
    stage.run(1)
    stage.network.changed()
    stage.run(1)
    assert stage.noted == ["server: end of stream"]
    stage.process.call_soon(stream.transport.close)
    stage.run(1)
    assert stage.noted == ["server: end of stream", "server: closed"]
    assert not stage.network.connections_of(stage.server)


def test_response_arrives_before_the_close_that_follows_it(stage: Stage) -> None:
    _, stream = stage.connected()

    def answer_and_close() -> None:
        stream.transport.writelines(framed(b"last"))
        stream.transport.close()
        stream.transport.abort()

    stage.process.call_soon(answer_and_close)
    stage.run(1)
    assert stage.frames == [b"last"]
    assert stage.noted == ["server: closed", "client: the peer closed the connection"]


def test_killed_process_closes_its_connections(stage: Stage) -> None:
    stage.connected()
    stage.process.kill()
    stage.network.hang_up(stage.server)
    stage.run(1)
    assert stage.noted == ["client: the peer closed the connection"]
    stage.dial()
    stage.run(1)
    assert stage.noted[1:] == ["client: cannot connect: Connection refused"]


def test_reset_breaks_both_sides(stage: Stage) -> None:
    stage.connected()
    assert stage.network.reset_connections("client", "server") == 1
    stage.run(1)
    reason = "the connection is lost: Connection reset by peer"
    assert sorted(stage.noted) == [f"client: {reason}", f"server: lost ({reason})"]


def test_held_process_keeps_tcp_connections_and_loses_those_of_zeromq(stage: Stage) -> None:
    line, _ = stage.connected()
    answers = lambda frames: stage.answers.append(bytes(frames[0]))  # noqa: E731
    dealer = SimulatedDealer(
        stage.network, stage.client, stage.client_process, BROKERS, answers, partial(stage.note, "dealer: ended")
    )
    dealer.send([b"message"])
    stage.run(1)
    assert stage.answers == [b"message"]
    stage.process.hold()
    stage.network.changed()
    line.send(framed(b"request"))
    another = stage.dial()
    another.send(framed(b"another"))
    stage.run(60)
    assert stage.noted == ["dealer: ended"]
    assert not stage.frames
    stage.process.resume()
    stage.network.changed()
    stage.run(1)
    assert sorted(stage.frames) == [b"another", b"request"]


def test_client_ends_its_connection_seconds_after_the_server_lost_power(stage: Stage) -> None:
    stage.connected()
    begun_s = stage.timeline.now_ns / NS_PER_S
    stage.power_off()
    stage.run(60)
    assert stage.noted == ["client: the connection is lost: Connection timed out"]
    assert 4 <= stage.ended_s - begun_s <= 9


def test_machine_without_power_closes_no_connection_until_it_boots(stage: Stage) -> None:
    stage.connected()
    answers = lambda frames: stage.answers.append(bytes(frames[0]))  # noqa: E731
    SimulatedDealer(
        stage.network, stage.client, stage.client_process, BROKERS, answers, partial(stage.note, "dealer: ended")
    )
    stage.run(1)
    stage.power_off()
    stage.run(3)
    assert stage.noted == []
    stage.server.up = True
    stage.network.changed()
    stage.run(1)
    assert sorted(stage.noted) == ["client: the peer closed the connection", "dealer: ended"]


@pytest.mark.parametrize("cut", [("client", "server"), ("server", "client")])
def test_cut_of_either_direction_ends_the_connection_for_the_client(stage: Stage, cut: tuple[str, str]) -> None:
    stage.connected()
    stage.network.cut(*cut)
    stage.network.changed()
    stage.run(60)
    told = ["server: end of stream", "server: closed"] if cut[0] == "server" else []
    assert stage.noted == ["client: the connection is lost: Connection timed out", *told]


def test_messages_at_a_short_cut_arrive_when_it_is_healed(stage: Stage) -> None:
    line, _ = stage.connected()
    stage.network.cut("client", "server")
    stage.network.changed()
    line.send(framed(b"one"))
    line.send(framed(b"two"))
    stage.run(3)
    assert not stage.frames
    stage.network.heal()
    stage.network.changed()
    stage.run(10)
    assert (stage.frames, stage.noted) == ([b"one", b"two"], [])


def test_server_learns_of_a_close_behind_a_cut_when_it_is_healed(stage: Stage) -> None:
    line, _ = stage.connected()
    stage.network.cut("client", "server")
    stage.network.changed()
    line.close()
    stage.run(60)
    assert stage.noted == []
    stage.network.heal()
    stage.network.changed()
    stage.run(1)
    assert stage.noted == ["server: end of stream", "server: closed"]


def test_connection_waits_for_a_cut_to_be_healed(stage: Stage) -> None:
    stage.listen()
    stage.network.cut("server", "client")
    stage.dial().send(framed(b"patient"))
    stage.run(2)
    assert not stage.streams
    stage.network.heal()
    stage.network.changed()
    stage.run(1)
    assert stage.frames == [b"patient"]
