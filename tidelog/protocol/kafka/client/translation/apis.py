"""Choose the translation of a typed request. The module of a translation is imported at its first use."""

from __future__ import annotations

from collections.abc import Container
from importlib import import_module

from tidelog.protocol.kafka.client.translation.extensions import extension_translation
from tidelog.protocol.kafka.client.translation.translation import Translation
from tidelog.protocol.kafka.extensions import EXTENSION_APIS, extension_number
from tidelog.protocol.messages import ApiKey, Request

#: The modules of this package with the translations into Kafka's messages. A translation has the name of its API.
_MODULES = {
    "records": (ApiKey.PRODUCE, ApiKey.FETCH),
    "log_offsets": (ApiKey.LIST_OFFSETS, ApiKey.LIST_SEGMENT_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH),
    "metadata": (ApiKey.METADATA, ApiKey.FIND_COORDINATOR),
    "producers": (ApiKey.INIT_PRODUCER_ID,),
    "topics": (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS, ApiKey.DELETE_RECORDS),
    "configs": (ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS),
    "replicas": (
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
    ),
    "groups.offsets": (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE),
    "groups.membership": (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP),
    "groups.admin": (ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS),
}
_MODULE_OF = {api: module for module, apis in _MODULES.items() for api in apis}

_into_kafka: dict[ApiKey, Translation] = {}
_into_extensions: dict[ApiKey, Translation] = {}


def translation_of(request: Request, offered: Container[int]) -> Translation:
    """Return how the request is written to a broker that offers these APIs.

    An extension is preferred where a broker offers it, because its messages have more fields. If neither the extension
    nor Kafka's message is offered, the translation is the one into Kafka's message, if there is one.
    """
    api = request.api
    if api in EXTENSION_APIS and (extension_number(api) in offered or api not in _MODULE_OF):
        if api not in _into_extensions:
            _into_extensions[api] = extension_translation(type(request))
        return _into_extensions[api]
    if api not in _into_kafka:
        module = import_module(f"{__package__}.{_MODULE_OF[api]}")
        _into_kafka[api] = getattr(module, api.name)
    return _into_kafka[api]
