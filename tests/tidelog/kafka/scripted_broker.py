"""A broker of Kafka's protocol in memory, whose responses a test chooses, and the network that leads to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from struct import pack
from typing import Any

from tidelog.model import Buffer, Endpoint
from tidelog.protocol.codec import encode_body
from tidelog.protocol.kafka.client.line import OnEnded
from tidelog.protocol.kafka.codec import decode
from tidelog.protocol.kafka.extensions import carrier_of
from tidelog.protocol.kafka.headers import RequestHeader, decode_request_header, encode_response
from tidelog.protocol.kafka.messages.metadata import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    MetadataRequest,
)
from tidelog.protocol.kafka.schema import Request, Response, Versions
from tidelog.protocol.operator_messages import BrokerIdentityRequest, BrokerIdentityResponse

IDENTITY = carrier_of(BrokerIdentityRequest)
#: The APIs of Kafka that the broker offers, and those of a broker of Tidelog.
KAFKA_APIS = {ApiVersionsRequest.api: Versions(0, 3), MetadataRequest.api: Versions(0, 12)}
TIDELOG_APIS = {**KAFKA_APIS, IDENTITY.api: Versions(0, 0)}


class ScriptedBroker:
    """One broker, to whose requests the test replies.

    apis       the APIs that ApiVersions lists
    received   the requests with their headers, without those of the handshake
    features   the finalized features that ApiVersions lists, with their levels
    answers    whether the handshake is answered
    """

    def __init__(self, apis: dict[int, Versions] | None = None) -> None:
        self.apis = TIDELOG_APIS if apis is None else apis
        self.received: list[tuple[RequestHeader, Request]] = []
        self.introduced: list[ApiVersionsRequest] = []
        self.features: dict[str, int] = {}
        self.answers = True
        self.lines: list[ScriptedLine] = []

    def dial(self, address: Endpoint, on_frame: Callable[[memoryview], None], on_ended: OnEnded) -> ScriptedLine:
        self.lines.append(ScriptedLine(self, on_frame, on_ended))
        return self.lines[-1]

    def take(self, line: ScriptedLine, frame: bytes) -> None:
        header, position = decode_request_header(frame)
        body = frame[position:]
        if header.api_key == ApiVersionsRequest.api:
            self._shake_hands(line, header, body)
        elif header.api_key == IDENTITY.api:
            identity = IDENTITY.response(error_code=0, body=encode_body(BrokerIdentityResponse("c1", 7)))
            line.respond(header, identity)
        else:
            self.received.append((header, decode(MetadataRequest, header.api_version, body)))

    def _shake_hands(self, line: ScriptedLine, header: RequestHeader, body: bytes) -> None:
        if not self.answers:
            return
        keys = tuple(
            ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.apis.items()
        )
        if header.api_version > self.apis[ApiVersionsRequest.api].last:
            line.respond(header._replace(api_version=0), ApiVersionsResponse(error_code=35, api_keys=keys))
            return
        self.introduced.append(decode(ApiVersionsRequest, header.api_version, body))
        features = tuple(
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=1)
            for name, level in self.features.items()
        )
        line.respond(header, ApiVersionsResponse(error_code=0, api_keys=keys, finalized_features=features))


class ScriptedLine:
    """The client's end of one connection (`tidelog.protocol.kafka.client.line.Line`)."""

    def __init__(self, broker: ScriptedBroker, on_frame: Callable[[memoryview], None], on_ended: OnEnded) -> None:
        self.is_open = True
        self.on_ended = on_ended
        self._broker = broker
        self._on_frame = on_frame

    def send(self, frame: Sequence[Buffer]) -> None:
        assert self.is_open
        data = b"".join(frame)
        assert data[:4] == pack(">i", len(data) - 4)
        asyncio.get_running_loop().call_soon(self._broker.take, self, data[4:])

    def close(self) -> None:
        self.is_open = False

    def respond(self, header: RequestHeader, response: Response) -> None:
        parts: Any = encode_response(response, header.api_version, header.correlation_id)
        self.send_frame(b"".join(parts)[4:])

    def send_frame(self, frame: bytes) -> None:
        asyncio.get_running_loop().call_soon(lambda: self._on_frame(memoryview(frame)) if self.is_open else None)
