"""DescribeConfigs, IncrementalAlterConfigs and AlterConfigs: describe and change settings of topics and brokers.

A topic's settings are read from and written to ZooKeeper, so that all brokers answer alike. Changes take effect when
the controller sends them in UpdateMetadata. A broker's settings are those of its files, and those in ZooKeeper that can
change while the broker runs; each broker watches its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from cluster.zookeeper.broker_configs import ALL_BROKERS
from cluster.zookeeper.store import StoreError
from cluster.zookeeper.topic_configs import Change
from cluster.zookeeper.znodes import MalformedZnodeError
from node.controller.command_errors import broker_error_of
from node.handlers.config_descriptions import describe_all_brokers, describe_broker
from node.metadata.internal_topics import InternalTopicRules
from node.metadata.metadata_cache import MetadataCache
from node.runtime.lock_with_deadline import lock_until
from node.settings.broker_settings import BrokerSettings
from node.settings.dynamic_settings import DYNAMIC_NAMES, DynamicSettings
from storage.configs.descriptions import describe_topic
from storage.configs.incremental_changes import changed, changed_texts
from tidelog.clock import Clock
from tidelog.errors import (
    BrokerError,
    InvalidConfigError,
    InvalidRequestError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import validate_topic
from tidelog.protocol.admin_messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlteredConfigs,
    ConfigAlteration,
    ConfigChange,
    ConfigEntry,
    ConfigQuery,
    ConfigResourceType,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribedConfigs,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ReplacedConfigs,
)

log = logging.getLogger(__name__)

#: The limit of resources in one request, because the answer is built and sent in one piece.
MAX_RESOURCES = 1000
#: The longest time that an answer waits until this broker itself has received the new settings.
_PROPAGATION_MS = 500
#: The number of topics that are read or written at the same time, over all requests.
_AT_ONCE = 100


class Topics(Protocol):
    """The part of `cluster.zookeeper.topic_configs.TopicConfigs` that reads and changes settings."""

    async def read(self, topic: str) -> Mapping[str, str] | None: ...
    async def change(self, topic: str, change: Change) -> Mapping[str, str] | None: ...


class Brokers(Protocol):
    """The part of `node.settings.broker_config_watch.BrokerConfigWatch` that reads and changes settings."""

    settings: DynamicSettings

    async def read(self, name: str) -> Mapping[str, str]: ...
    async def change(self, name: str, change: Change) -> Mapping[str, str]: ...


#: Raises InvalidConfigError if this broker cannot have the advertised addresses of these settings.
CheckAddresses = Callable[[BrokerSettings], Awaitable[None]]


async def any_addresses(settings: BrokerSettings) -> None:
    """Accept any advertised addresses."""


class Configs:
    """Describes and changes the settings of topics, of this broker, and of all brokers.

    Topic settings are read from and written to ZooKeeper; `metadata` shows when this broker has received a change. At
    most `_AT_ONCE` topics are read or written at a time. A topic that still waits for its turn at the request's
    deadline (monotonic; below 0: none) is refused with REQUEST_TIMED_OUT. `check_addresses` is called before the
    advertised addresses of this broker change.
    """

    def __init__(
        self,
        brokers: Brokers,
        topics: Topics,
        metadata: MetadataCache,
        clock: Clock,
        check_addresses: CheckAddresses = any_addresses,
    ) -> None:
        self._brokers = brokers
        self._settings = brokers.settings
        self._metadata = metadata
        self._clock = clock
        self._check_addresses = check_addresses
        self._topics = topics
        self._internal = InternalTopicRules.of(brokers.settings.static)
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def describe(self, request: DescribeConfigsRequest, deadline_ms: int) -> DescribeConfigsResponse:
        """Return the settings of each resource, or its error, in the order of the request.

        Another broker's settings are refused. Raise InvalidRequestError if there are more than MAX_RESOURCES.
        """
        _raise_if_too_many(request.resources)
        described = (self._describe_one(query, request, deadline_ms) for query in request.resources)
        return DescribeConfigsResponse(tuple(await asyncio.gather(*described)))

    async def alter(self, request: IncrementalAlterConfigsRequest, deadline_ms: int) -> IncrementalAlterConfigsResponse:
        """Change each resource as a whole or not at all. Return success or an error for each, in the request's order.

        With `validate_only` nothing is changed. Otherwise the answer waits up to `_PROPAGATION_MS` until this broker
        has received the change of a topic. A resource that is named twice, another broker, and settings that cannot
        change while a broker runs are refused. Raise InvalidRequestError if there are more than MAX_RESOURCES.
        """
        return IncrementalAlterConfigsResponse(await self._alter_each(request, deadline_ms))

    async def replace(self, request: AlterConfigsRequest, deadline_ms: int) -> AlterConfigsResponse:
        """Replace all own settings of each resource, in one write, under the same conditions as `alter`."""
        return AlterConfigsResponse(await self._alter_each(request, deadline_ms))

    # --- describing ------------------------------------------------------------------------------------------

    async def _describe_one(
        self, query: ConfigQuery, request: DescribeConfigsRequest, deadline_ms: int
    ) -> DescribedConfigs:
        try:
            entries = await self._entries(query, deadline_ms)
        except (BrokerError, StoreError, MalformedZnodeError) as error:
            refused = _refused(error)
            return DescribedConfigs(query.resource_type, query.resource_name, refused.code, str(refused))
        return DescribedConfigs(
            query.resource_type,
            query.resource_name,
            0,
            entries=tuple(
                replace(
                    entry,
                    synonyms=entry.synonyms if request.include_synonyms else (),
                    documentation=entry.documentation if request.include_documentation else None,
                )
                for entry in entries
                if query.keys is None or entry.name in query.keys
            ),
        )

    async def _entries(self, query: ConfigQuery, deadline_ms: int) -> Iterable[ConfigEntry]:
        if query.resource_type == ConfigResourceType.BROKER:
            if not query.resource_name:
                return describe_all_brokers(self._settings)
            self._raise_unless_mine(query.resource_name)
            return describe_broker(self._settings)
        topic = _topic_of(query)
        async with lock_until(self._turns, self._clock, deadline_ms):
            configs = await self._topics.read(topic)
        if configs is None:
            raise _no_such_topic(topic)
        return describe_topic(configs, self._settings.synonyms, self._settings.current.topic_defaults)

    # --- changing --------------------------------------------------------------------------------------------

    async def _alter_each(
        self, request: IncrementalAlterConfigsRequest | AlterConfigsRequest, deadline_ms: int
    ) -> tuple[AlteredConfigs, ...]:
        _raise_if_too_many(request.resources)
        named = Counter((each.resource_type, each.resource_name) for each in request.resources)
        altered = (
            self._alter_one(
                each, request.validate_only, deadline_ms, twice=named[each.resource_type, each.resource_name] > 1
            )
            for each in request.resources
        )
        return tuple(await asyncio.gather(*altered))

    async def _alter_one(
        self, alteration: ConfigAlteration | ReplacedConfigs, validate_only: bool, deadline_ms: int, *, twice: bool
    ) -> AlteredConfigs:
        kind, name = alteration.resource_type, alteration.resource_name
        try:
            if twice:
                raise InvalidRequestError(f"the request names {name!r} twice")
            if kind == ConfigResourceType.BROKER:
                await self._alter_broker(alteration, validate_only)
            else:
                await self._alter_topic(_topic_of(alteration), alteration, validate_only, deadline_ms)
        except (BrokerError, StoreError, MalformedZnodeError) as error:
            refused = _refused(error)
            return AlteredConfigs(kind, name, refused.code, str(refused))
        return AlteredConfigs(kind, name, 0)

    async def _alter_topic(
        self, topic: str, alteration: ConfigAlteration | ReplacedConfigs, validate_only: bool, deadline_ms: int
    ) -> None:
        defaults = self._settings.current.topic_defaults

        def change(before: Mapping[str, str]) -> Mapping[str, str]:
            if isinstance(alteration, ReplacedConfigs):
                before = {}
            after = changed(before, _changes(alteration), defaults)
            self._internal.check_configs(topic, after, self._metadata.fewest_replicas(topic))
            return after

        async with lock_until(self._turns, self._clock, deadline_ms):
            if validate_only:
                before = await self._topics.read(topic)
                after = None if before is None else change(before)
            else:
                after = await self._topics.change(topic, change)
        if after is None:
            raise _no_such_topic(topic)
        if not validate_only:
            log.info("topic %s: settings changed to %s", topic, after)
            await self._wait_until_received(topic, after)

    async def _wait_until_received(self, topic: str, configs: Mapping[str, str]) -> None:
        """Wait, at most `_PROPAGATION_MS`, until the controller has sent these settings to this broker.

        A client expects its change to work once it is answered. The change is already written, so the wait is bounded.
        """

        def received() -> bool:
            known = self._metadata.topic(topic)
            return known is None or known.configs == configs

        await self._metadata.progress.until(received, _PROPAGATION_MS)

    async def _alter_broker(self, alteration: ConfigAlteration | ReplacedConfigs, validate_only: bool) -> None:
        """Change the settings in ZooKeeper of this broker, or without a name of all brokers, and apply them here.

        A setting that is not in ZooKeeper can be deleted, whatever its name, because Kafka's tools do so. If this
        broker's addresses change, wait up to `_PROPAGATION_MS` until the controller has sent them to this broker.
        """
        if alteration.resource_name:
            self._raise_unless_mine(alteration.resource_name)
        lists = {"log.cleanup.policy": self._settings.current.topic_defaults.to_topic_configs()["cleanup.policy"]}
        changes = _changes(alteration)

        name = alteration.resource_name or ALL_BROKERS

        def change(before: Mapping[str, str]) -> tuple[Mapping[str, str], BrokerSettings]:
            if isinstance(alteration, ReplacedConfigs):
                before = {}
            after = changed_texts(before, changes, lists)
            # Other programs may have written settings that brokers ignore. These may stay.
            named = {each.name for each in changes} | DYNAMIC_NAMES
            valid = {name: text for name, text in after.items() if name in named}
            return after, self._settings.check(valid, for_all=name == ALL_BROKERS)

        if name != ALL_BROKERS:
            _, checked = change(await self._brokers.read(name))
            await self._check_addresses(checked)
        if validate_only:
            change(await self._brokers.read(name))
            return
        after = await self._brokers.change(name, lambda before: change(before)[0])
        log.info("broker %s: settings changed to %s", name, after)
        await self._metadata.progress.until(self._are_addresses_known, _PROPAGATION_MS)

    def _are_addresses_known(self) -> bool:
        """Return whether the metadata of clients has this broker's present addresses, or lacks the broker."""
        current = self._settings.current
        known = self._metadata.brokers.get(current.broker_id)
        return known is None or all(known.endpoint_of(at.name) == at.advertised for at in current.listener_endpoints)

    def _raise_unless_mine(self, name: str) -> None:
        if name != str(self._settings.static.broker_id):
            raise InvalidRequestError(
                f"broker {name[:100]!r}: broker {self._settings.static.broker_id} knows only its own settings; "
                "send the request to that broker"
            )


def _raise_if_too_many(resources: Sequence[object]) -> None:
    if len(resources) > MAX_RESOURCES:
        raise InvalidRequestError(f"the request names {len(resources)} resources; must be at most {MAX_RESOURCES}")


def _changes(alteration: ConfigAlteration | ReplacedConfigs) -> tuple[ConfigChange, ...]:
    if isinstance(alteration, ConfigAlteration):
        return alteration.changes
    return tuple(ConfigChange(name, value) for name, value in alteration.configs.items())


def _topic_of(resource: ConfigQuery | ConfigAlteration | ReplacedConfigs) -> str:
    if resource.resource_type != ConfigResourceType.TOPIC:
        raise InvalidRequestError(f"resource type {resource.resource_type}: only topics and brokers have settings here")
    return validate_topic(resource.resource_name)


def _no_such_topic(topic: str) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(f"topic {topic!r} does not exist")


def _refused(error: BrokerError | StoreError | MalformedZnodeError) -> BrokerError:
    return InvalidConfigError(str(error)) if isinstance(error, MalformedZnodeError) else broker_error_of(error)
