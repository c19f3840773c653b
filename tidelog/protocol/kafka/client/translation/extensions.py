"""The requests that Kafka has no message for: typed messages as they are, in the bodies of extensions."""

from __future__ import annotations

from tidelog.protocol.codec import decode_body, encode_body
from tidelog.protocol.kafka.client.translation.translation import Translation, raise_error_of
from tidelog.protocol.kafka.extensions import ExtensionRequest, ExtensionResponse, carrier_of
from tidelog.protocol.kafka.schema import Versions
from tidelog.protocol.messages import Request, Response


def extension_translation(cls: type[Request]) -> Translation:
    """Return how the typed requests of this class are sent as extensions."""
    return Translation(carrier_of(cls), lambda request: Versions(*request.versions), _write, _read)


def _write(request: Request, version: int) -> ExtensionRequest:
    return carrier_of(type(request))(body=encode_body(request, version))


def _read(response: ExtensionResponse, request: Request, version: int) -> Response:
    raise_error_of(response)
    return decode_body(response.body, request.response, version)
