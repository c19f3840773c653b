"""The HTTP server over real loopback sockets, with well-behaved and malicious clients."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from node.net.http_server import MAX_REQUEST_BYTES, Answer, HttpServer, line
from tests.virtual_time import until
from tidelog.model import Endpoint

pytestmark = pytest.mark.timeout(20)  # these tests prove that no connection waits for ever

LARGE = b"x" * (8 << 20)


async def answer(path: str) -> Answer | None:
    match path:
        case "/one":
            return line(200, "a word\nand another")
        case "/large":
            return Answer(200, LARGE)
        case "/broken":
            raise RuntimeError("secret")
    return None


@asynccontextmanager
async def a_port(deadline_s: float = 5, max_connections: int = 32) -> AsyncIterator[HttpServer]:
    port = HttpServer(Endpoint("127.0.0.1", 0), answer, deadline_s=deadline_s, max_connections=max_connections)
    await port.start()
    try:
        yield port
    finally:
        await port.stop()


async def connect(port: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(port.endpoint.host, port.endpoint.port)


async def exchange(port: HttpServer, sent: bytes) -> bytes:
    reader, writer = await connect(port)
    writer.write(sent)
    try:
        return await reader.read(-1)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


async def test_http_response_has_its_length_and_closes_the_connection() -> None:
    async with a_port() as port:
        response = await exchange(port, b"GET /one?verbose=1 HTTP/1.1\r\nHost: h\r\n\r\n")
        head, body = response.split(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n") and b"Connection: close" in head
        assert body == b"a word and another\n" and f"Content-Length: {len(body)}".encode() in head
        response = await exchange(port, b"HEAD /one HTTP/1.1\r\n\r\n")
        assert response.endswith(b"\r\n\r\n") and b"Content-Length: 19" in response


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /two HTTP/1.1\r\n\r\n", 404),
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"POST /one HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"GET /one\r\n\r\n", 400),
        (b"\xff\x00\x01\r\n\r\n", 400),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", 400),
        (b"GET /broken HTTP/1.1\r\n\r\n", 500),
        (b"GET /one HTTP/1.1\r\nX: " + b"x" * MAX_REQUEST_BYTES + b"\r\n\r\n", 431),
    ],
)
async def test_malformed_http_request_is_refused(request_: bytes, status: int) -> None:
    async with a_port() as port:
        response = await exchange(port, request_)
        assert response.startswith(f"HTTP/1.1 {status} ".encode())
        assert b"secret" not in response and response.count(b"\n") == response.split(b"\r\n\r\n")[0].count(b"\n") + 3


async def test_connection_with_an_unfinished_request_is_closed() -> None:
    async with a_port(deadline_s=0.05) as port:
        assert await exchange(port, b"GET /one HTTP/1.1\r\n") == b""


async def test_stalled_reader_delays_no_other_and_is_disconnected() -> None:
    async with a_port(deadline_s=1) as port:
        reader, writer = await connect(port)
        writer.write(b"GET /large HTTP/1.1\r\n\r\n")
        response = await exchange(port, b"GET /one HTTP/1.1\r\n\r\n")
        assert response.startswith(b"HTTP/1.1 200"), "another client is answered meanwhile"
        await until(lambda: not port._open)
        assert len(await reader.read(-1)) < len(LARGE)
        writer.close()


async def test_request_is_answered_despite_many_idle_connections() -> None:
    async with a_port(max_connections=2) as port:
        silent = [await connect(port) for _ in range(2)]
        for _, writer in silent:
            writer.write(b"GET /one HT")
        await until(lambda: len(port._open) == 2)
        assert (await exchange(port, b"GET /one HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert await silent[0][0].read() == b"", "the connection without a request for the longest time is closed"
        silent[1][1].write(b"TP/1.1\r\n\r\n")
        assert (await silent[1][0].read()).startswith(b"HTTP/1.1 200")
        for _, writer in silent:
            writer.close()


async def test_connections_are_bounded() -> None:
    async with a_port(max_connections=2) as port:
        held = [await connect(port) for _ in range(2)]
        for _, writer in held:
            writer.write(b"GET /large HTTP/1.1\r\n\r\n")
        await until(lambda: len(port._open) == 2 and not port._without_request)
        assert await exchange(port, b"GET /one HTTP/1.1\r\n\r\n") == b""
        for _, writer in held:
            writer.transport.abort()
        await until(lambda: not port._open)
        assert await exchange(port, b"GET /one HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("question", [b"GET /one HTTP/1.1\r\nX: ", b"GET /one HTTP/1.1\r\n\r\n", b""])
async def test_endless_request_is_not_read(question: bytes) -> None:
    async with a_port(deadline_s=15) as port:
        _, writer = await connect(port)
        writer.write(question)
        spoken = 0
        with pytest.raises(OSError):
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
                spoken += 65536
                assert spoken < 64 << 20
        writer.close()


async def test_accept_rate_leaves_the_loop_to_other_work() -> None:
    async with a_port(max_connections=100) as port:
        loop = asyncio.get_running_loop()
        began = loop.time()
        answers = await asyncio.gather(*(exchange(port, b"GET /one HTTP/1.1\r\n\r\n") for _ in range(30)))
        assert all(answers)
        assert loop.time() - began > 0.25


async def test_taken_port_is_named_in_the_error() -> None:
    async with a_port() as port:
        with pytest.raises(OSError, match=f"cannot listen on {port.endpoint}") as raised:
            await HttpServer(port.endpoint, answer).start()
        assert raised.value.errno == errno.EADDRINUSE


async def test_unusable_address_is_named_with_the_reason() -> None:
    for host, reason in (("no.such.host.invalid", "[Nn]ame"), ("192.0.2.1", "Cannot assign requested address$")):
        with pytest.raises(OSError, match=f"cannot listen on {host}:9680: .*{reason}"):
            await HttpServer(Endpoint(host, 9680), answer).start()


async def test_stopped_server_serves_no_request() -> None:
    async with a_port() as port:
        reader, writer = await connect(port)
        await port.stop()
        with pytest.raises(OSError):
            await connect(port)
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(("host", "beyond"), [("localhost", False), ("127.0.0.3", False), ("0.0.0.0", True)])
async def test_server_knows_whether_other_machines_reach_it(host: str, beyond: bool) -> None:
    port = HttpServer(Endpoint(host, 0), answer)
    await port.start()
    try:
        assert port.beyond_this_machine is beyond
    finally:
        await port.stop()
