"""Check the objects that a user passes to the admin; see `tidelog.arguments`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from tidelog import arguments
from tidelog.client.admin.config_requests import ConfigResource
from tidelog.errors import ArgumentTypeError, ArgumentValueError
from tidelog.groups.descriptions import MemberDescription, MemberToRemove
from tidelog.groups.reset import ResetTarget, ShiftBy, ToOffset, ToTime
from tidelog.model import TopicPartition
from tidelog.protocol.admin_messages import ConfigChange, ConfigOp, ConfigResourceType
from tidelog.protocol.messages import NewTopic
from tidelog.protocol.partition_messages import NewPartitions
from tidelog.timestamps import to_target_ms

_TARGETS = get_args(ResetTarget)


def new_topics(name: str, value: Any) -> tuple[NewTopic, ...]:
    """Return checked copies of the NewTopic objects. Only the types of settings and numbers are checked; the broker
    checks their values.
    """
    return tuple(
        NewTopic(
            arguments.topic(f"{name}[{place}].name", each.name),
            arguments.int32(f"{name}[{place}].num_partitions", each.num_partitions),
            arguments.int32(f"{name}[{place}].replication_factor", each.replication_factor),
            arguments.assignment(f"{name}[{place}].assignment", each.assignment),
            None if each.configs is None else _settings(f"{name}[{place}].configs", each.configs),
        )
        for place, each in enumerate(arguments.instances(name, value, NewTopic))
    )


def new_partitions(name: str, value: Any) -> tuple[NewPartitions, ...]:
    """Return checked copies of the NewPartitions objects. The broker checks the ranges of the numbers."""
    return tuple(
        NewPartitions(
            arguments.topic(f"{name}[{place}].name", each.name),
            arguments.int32(f"{name}[{place}].total_count", each.total_count),
            arguments.assignment(f"{name}[{place}].assignment", each.assignment),
        )
        for place, each in enumerate(arguments.instances(name, value, NewPartitions))
    )


def replicas_by_partition(name: str, value: Any) -> dict[TopicPartition, tuple[int, ...] | None]:
    """Return the broker ids of each partition's wanted replicas; None cancels the partition's reassignment."""
    return {
        tp: None if ids is None else tuple(arguments.broker_ids(f"{name}[{tp}]", ids))
        for tp, ids in arguments.by_partition(name, value).items()
    }


def resources(name: str, value: Any) -> list[ConfigResource]:
    """Return checked copies of the ConfigResource objects. A broker's name is not checked to be a number."""
    found = arguments.instances(name, value, ConfigResource)
    return [_resource(f"{name}[{place}]", each) for place, each in enumerate(found)]


def config_changes(name: str, value: Any) -> dict[ConfigResource, list[ConfigChange]]:
    """Return the changes of each resource, in the given order.

    A resource's changes are a mapping of settings to values (None: DELETE, else SET), or ConfigChange objects.
    """
    changed: dict[ConfigResource, list[ConfigChange]] = {}
    for key, changes in arguments.mapping(name, value, "ConfigResource").items():
        (resource,) = resources(f"{name}: a key", [key])
        changed[resource] = _changes(f"{name}[{resource.type.name.lower()} {resource.name}]", changes)
    return changed


def reset_target(name: str, value: Any) -> ResetTarget:
    """Return the checked target of an offset reset, an object of one of the classes in ResetTarget."""
    if not isinstance(value, _TARGETS):
        kinds = ", ".join(each.__name__ for each in _TARGETS)
        raise ArgumentTypeError(f"{name} must be one of {kinds}, not {arguments.shown(value)}")
    match value:
        case ToOffset(at):
            return ToOffset(arguments.offset(f"{name}.offset", at))
        case ShiftBy(records):
            return ShiftBy(arguments.whole(f"{name}.records", records, -arguments.INT64_MAX))
        case ToTime(time):
            to_target_ms(time, f"{name}.time")
    return value  # type: ignore[no-any-return]


def members_to_remove(name: str, value: Any) -> list[MemberToRemove]:
    """Return the members, each once; each is a MemberToRemove, or a MemberDescription that names itself.

    A member without a member id and an instance id raises ArgumentValueError.
    """
    named = [_named(each) for each in value] if isinstance(value, list | tuple) else value
    found = arguments.instances(name, named, MemberToRemove)
    return list(dict.fromkeys(_member(f"{name}[{place}]", each) for place, each in enumerate(found)))


def _named(value: Any) -> Any:
    is_described = isinstance(value, MemberDescription)
    return MemberToRemove(value.member_id, value.group_instance_id) if is_described else value


def _member(name: str, value: MemberToRemove) -> MemberToRemove:
    member_id = arguments.text(f"{name}.member_id", value.member_id)
    instance_id = value.group_instance_id
    if instance_id is not None:
        instance_id = arguments.text(f"{name}.group_instance_id", instance_id)
    if not member_id and not instance_id:
        raise ArgumentValueError(f"{name} must have a member_id or a group_instance_id, not {arguments.shown(value)}")
    return MemberToRemove(member_id, instance_id)


def _resource(name: str, resource: ConfigResource) -> ConfigResource:
    kind = arguments.choice(f"{name}.type", resource.type, ConfigResourceType)
    return ConfigResource(kind, arguments.text(f"{name}.name", resource.name))


def _settings(name: str, value: Any) -> dict[str, str]:
    return {
        arguments.text(f"{name}: a key", setting): arguments.text(f"{name}[{setting!r}]", each)
        for setting, each in arguments.mapping(name, value, "settings").items()
    }


def _changes(name: str, value: Any) -> list[ConfigChange]:
    if isinstance(value, Mapping):
        deleted = {arguments.text(f"{name}: a key", key) for key, each in value.items() if each is None}
        given = _settings(name, {key: each for key, each in value.items() if each is not None})
        return [ConfigChange(key, given.get(key), ConfigOp.DELETE if key in deleted else ConfigOp.SET) for key in value]
    return [
        ConfigChange(
            arguments.text(f"{name}[{place}].name", each.name),
            None if each.value is None else arguments.text(f"{name}[{place}].value", each.value),
            arguments.choice(f"{name}[{place}].operation", each.operation, ConfigOp),
        )
        for place, each in enumerate(arguments.instances(name, value, ConfigChange))
    ]
