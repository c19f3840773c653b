"""ApiVersions: the first request of most clients, which tells them what they may send."""

from __future__ import annotations

from collections.abc import Iterable

from node.kafka.calls import KafkaApi
from node.net.client_connections import ClientConnection
from node.net.client_software import valid_software
from tidelog.errors import BrokerError, InvalidRequestError
from tidelog.protocol.kafka.messages.metadata import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

#: The first version in which a client states its software (KIP-511).
SOFTWARE_FROM = 3


def offered(apis: Iterable[KafkaApi], error_code: int = 0) -> ApiVersionsResponse:
    """Return the response that lists these APIs with their versions, in the order of their numbers."""
    keys = tuple(
        ApiVersion(api_key=api.request.api, min_version=api.versions.first, max_version=api.versions.last)
        for api in sorted(apis, key=lambda api: api.request.api)
    )
    return ApiVersionsResponse(error_code=error_code, api_keys=keys)


def note_software(request: ApiVersionsRequest, client: ClientConnection) -> None:
    """Note the software that a client states. Raise InvalidRequestError, as Kafka does, if KIP-511 forbids the text."""
    software = valid_software(request.client_software_name, request.client_software_version)
    if software is None:
        raise InvalidRequestError("the client's software has a name or a version that KIP-511 forbids")
    client.identify(software)


def api_versions_error(request: ApiVersionsRequest, error: BrokerError, version: int) -> ApiVersionsResponse:
    """Return the response with this error. Like Kafka's, it lists no APIs."""
    return ApiVersionsResponse(error_code=error.code, api_keys=())
