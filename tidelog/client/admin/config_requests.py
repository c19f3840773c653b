"""Send the admin's requests to describe and change settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from tidelog.client.broker_requests import ask_broker
from tidelog.client.cluster_client import ClusterClient
from tidelog.errors import BrokerError, InvalidRequestError, error_for, raise_first
from tidelog.protocol.admin_messages import (
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
)
from tidelog.protocol.messages import Request, Response

#: Maximum number of resources per request; more are split into several requests.
_BATCH = 100

#: New values by setting (None deletes it), or ConfigChange objects, which may append to or subtract from lists.
Changes = Mapping[str, str | None] | Iterable[ConfigChange]


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """The owner of settings: a topic by its name, or a broker by its id, written as decimal digits.

    Example:

        orders = ConfigResource.topic("orders")
        print(admin.describe_configs([orders])[orders]["retention.ms"].value)
    """

    type: ConfigResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Self:
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int) -> Self:
        return cls(ConfigResourceType.BROKER, str(broker_id))

    @property
    def broker_id(self) -> int | None:
        """The broker that must be asked; None: any broker. InvalidRequestError if the name is not a broker id."""
        if self.type != ConfigResourceType.BROKER:
            return None
        if not self.name.isdecimal():
            raise InvalidRequestError(f"{self.name!r} is not the id of a broker")
        return int(self.name)


async def describe_configs(
    client: ClusterClient,
    resources: Iterable[ConfigResource],
    deadline_ms: int,
    *,
    include_synonyms: bool,
    include_documentation: bool,
) -> dict[ConfigResource, dict[str, ConfigEntry]]:
    """Return each resource's settings by name; brokers' settings come from the brokers themselves.

    Raises the first resource's error, and InvalidRequestError if a broker's name is not a number.
    """

    async def ask(broker_id: int | None, asked: list[ConfigResource]) -> tuple[DescribedConfigs, ...]:
        queries = tuple(ConfigQuery(resource.type, resource.name) for resource in asked)
        request = DescribeConfigsRequest(queries, include_synonyms, include_documentation)
        answer = await _ask(client, broker_id, request, deadline_ms)
        assert isinstance(answer, DescribeConfigsResponse)
        return answer.resources

    answers = [each for batch in _batches(resources) for each in await ask(*batch)]
    _raise_refusals(answers)
    return {_resource_of(each): {entry.name: entry for entry in each.entries} for each in answers}


async def alter_configs(
    client: ClusterClient,
    wanted: Mapping[ConfigResource, Iterable[ConfigChange]],
    deadline_ms: int,
    *,
    validate_only: bool,
) -> None:
    """Change settings; return when all changes are stored (with `validate_only`: are checked).

    Raises the first resource's error; changes of the other resources may have been stored. The broker named in a
    resource is asked itself, and any broker about topics.
    """

    async def ask(broker_id: int | None, asked: list[ConfigResource]) -> tuple[AlteredConfigs, ...]:
        alterations = tuple(
            ConfigAlteration(resource.type, resource.name, tuple(wanted[resource])) for resource in asked
        )
        answer = await _ask(client, broker_id, IncrementalAlterConfigsRequest(alterations, validate_only), deadline_ms)
        assert isinstance(answer, IncrementalAlterConfigsResponse)
        return answer.resources

    _raise_refusals([each for batch in _batches(wanted) for each in await ask(*batch)])


async def _ask(client: ClusterClient, broker_id: int | None, request: Request, deadline_ms: int) -> Response:
    if broker_id is None:
        return await client.call_any(request, deadline_ms)
    return await ask_broker(client, broker_id, request, deadline_ms)


def _batches(resources: Iterable[ConfigResource]) -> list[tuple[int | None, list[ConfigResource]]]:
    """Return the resources of each request, each once, with the broker that must be asked; None: any broker."""
    groups: dict[int | None, list[ConfigResource]] = {}
    for resource in dict.fromkeys(resources):
        groups.setdefault(resource.broker_id, []).append(resource)
    return [
        (broker_id, group[start : start + _BATCH])
        for broker_id, group in groups.items()
        for start in range(0, len(group), _BATCH)
    ]


def _resource_of(described: DescribedConfigs) -> ConfigResource:
    return ConfigResource(ConfigResourceType(described.resource_type), described.resource_name)


def _raise_refusals(answers: Iterable[DescribedConfigs | AlteredConfigs]) -> None:
    raise_first(map(_refusal_of, answers))


def _refusal_of(answer: DescribedConfigs | AlteredConfigs) -> BrokerError | None:
    kind = "topic" if answer.resource_type == ConfigResourceType.TOPIC else "broker"
    return error_for(answer.error_code, answer.error_message or f"{kind} {answer.resource_name}")
