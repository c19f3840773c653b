"""Describe the broker at the other end of a connection, as its response to ApiVersions shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.protocol.kafka.extensions import extension_number
from tidelog.protocol.kafka.messages.metadata import ApiVersionsResponse
from tidelog.protocol.kafka.schema import Versions
from tidelog.protocol.operator_messages import BrokerIdentityRequest

#: The `cluster_kind` of a cluster of Tidelog.
TIDELOG = "Tidelog"

#: The feature of a cluster with KRaft (KIP-778). Its level grows with the version of Kafka.
_METADATA_VERSION = "metadata.version"


class ConnectedBroker(NamedTuple):
    """The broker at the other end.

    apis                    the supported versions of each API by its number
    metadata_version        the cluster's level of metadata.version; −1: none, because the cluster has no KRaft
    cluster_id, broker_id   "" and −1 if the broker is not Tidelog's, because Kafka's protocol does not tell them
    """

    apis: Mapping[int, Versions]
    metadata_version: int = -1
    cluster_id: str = ""
    broker_id: int = -1

    @classmethod
    def of(cls, answer: ApiVersionsResponse) -> ConnectedBroker:
        """Return the broker that sent this answer, which has no error."""
        return cls(
            {each.api_key: Versions(each.min_version, each.max_version) for each in answer.api_keys},
            next((each.max_version_level for each in answer.finalized_features if each.name == _METADATA_VERSION), -1),
        )

    @property
    def has_extensions(self) -> bool:
        """Return whether the broker is one of Tidelog."""
        return extension_number(BrokerIdentityRequest.api) in self.apis

    @property
    def cluster_kind(self) -> str:
        """Return what kind of cluster the broker belongs to, in words for a user.

        That is "Tidelog", "Apache Kafka (metadata.version 27)" with KRaft, or "Apache Kafka (without KRaft)".
        """
        if self.has_extensions:
            return TIDELOG
        if self.metadata_version < 0:
            return "Apache Kafka (without KRaft)"
        return f"Apache Kafka ({_METADATA_VERSION} {self.metadata_version})"
