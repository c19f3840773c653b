"""The versions that ApiVersions tells clients."""

from __future__ import annotations

from tests.node.kafka.kafka_requests import apis_of


def test_every_offered_version_has_its_request_and_response() -> None:
    for api in apis_of(lambda request, context: None):
        for cls in (api.request, api.request.response):
            assert cls.valid.first <= api.versions.first <= api.versions.last <= cls.valid.last, cls.__name__
