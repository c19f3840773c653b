"""Fuzzes the frames of Kafka's protocol: requests that a broker receives, and responses that a client receives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from tidelog.errors import ProtocolError
from tidelog.model import Buffer
from tidelog.protocol.kafka.apis import API_BY_KEY, APIS, request_class
from tidelog.protocol.kafka.codec import Part, decode
from tidelog.protocol.kafka.headers import (
    SIZE_BYTES,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from tidelog.protocol.kafka.schema import Request
from tools.fuzz.kafka_examples import kafka_example
from tools.fuzz.targets.target import Target, check


def run_request(data: bytes) -> None:
    """Check that a decoded request can be encoded and decoded again, or that decoding raises ProtocolError."""
    try:
        header, position = decode_request_header(data)
        api = API_BY_KEY.get(header.api_key)
        if api is None or header.api_version not in api.valid:
            return
        cls = request_class(api)
        request = decode(cls, header.api_version, memoryview(data)[position:])
    except ProtocolError:
        return
    frame = b"".join(encode_request(request, header.api_version, header.correlation_id, header.client_id))[SIZE_BYTES:]
    again, position = decode_request_header(frame)
    check(again == header, f"{header} changes when it is sent on")
    check(decode(cls, again.api_version, frame[position:]) == request, f"{request} changes when it is sent on")


def run_response(data: bytes) -> None:
    """Check a response like a request. The first two bytes choose API and version, which a client knows itself."""
    if len(data) < 2:
        return
    request, version = _chosen(data)
    try:
        correlation_id, position = decode_response_header(data[2:], request, version)
        response = decode(request.response, version, data[2 + position :])
    except ProtocolError:
        return
    frame = _joined(encode_response(response, version, correlation_id))
    again, position = decode_response_header(frame, request, version)
    check(again == correlation_id, f"the header of {response} changes when it is sent on")
    check(decode(request.response, version, frame[position:]) == response, f"{response} changes when it is sent on")


def _joined(parts: list[Part]) -> bytes:
    """Return a frame without its size."""
    return b"".join(cast(list[Buffer], parts))[SIZE_BYTES:]


def _chosen(data: bytes) -> tuple[type[Request], int]:
    api = APIS[data[0] % len(APIS)]
    return request_class(api), api.valid.first + data[1] % (api.valid.last - api.valid.first + 1)


def _versions() -> Iterator[tuple[int, type[Request], int]]:
    """Yield each API by its place in the table, in its first and its last version."""
    for index, api in enumerate(APIS):
        for version in sorted({api.valid.first, api.valid.last}):
            yield index, request_class(api), version


def _request_seeds() -> list[bytes]:
    return [
        b"".join(encode_request(kafka_example(cls, version), version, 7, "fuzz"))[SIZE_BYTES:]
        for _, cls, version in _versions()
    ]


def _response_seeds() -> list[bytes]:
    return [
        bytes((index, version - cls.valid.first))
        + _joined(encode_response(kafka_example(cls.response, version), version, 7))
        for index, cls, version in _versions()
    ]


_PACKAGES = ("tidelog.protocol.kafka",)
_WORDS = (
    b"\xff\xff\xff\xff\x07",
    b"\x80\x80\x80\x80\x10",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x7f\xff",
    b"\xff\xff",
)

TARGETS = (
    Target("kafka-request", "Kafka's requests", run_request, _request_seeds, _PACKAGES, _WORDS),
    Target("kafka-response", "Kafka's responses", run_response, _response_seeds, _PACKAGES, _WORDS),
)
