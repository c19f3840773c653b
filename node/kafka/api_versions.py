"""ApiVersions: the first request of most clients, which tells them what they may send."""

from __future__ import annotations

from collections.abc import Iterable

from node.kafka.calls import KafkaApi
from tidelog.protocol.kafka.messages.metadata import ApiVersion, ApiVersionsResponse

API_VERSIONS = 18


def offered(apis: Iterable[KafkaApi], error_code: int = 0) -> ApiVersionsResponse:
    """Return the response that lists these APIs with their versions, in the order of their numbers."""
    keys = tuple(
        ApiVersion(api_key=api.request.api, min_version=api.versions.first, max_version=api.versions.last)
        for api in sorted(apis, key=lambda api: api.request.api)
    )
    return ApiVersionsResponse(error_code=error_code, api_keys=keys)
