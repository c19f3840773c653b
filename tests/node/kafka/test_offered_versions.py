"""The versions that ApiVersions tells clients."""

from __future__ import annotations

from node.kafka.translation.apis import kafka_apis
from node.metadata.metadata_cache import MetadataCache
from node.replication.sessions.consumer_sessions import ConsumerSessions
from tidelog.clock import SystemClock


def test_every_offered_version_has_its_request_and_response() -> None:
    for api in kafka_apis(lambda request, context: None, MetadataCache("c"), SystemClock(), ConsumerSessions()):
        for cls in (api.request, api.request.response):
            assert cls.valid.first <= api.versions.first <= api.versions.last <= cls.valid.last, cls.__name__
