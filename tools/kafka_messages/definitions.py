"""Read Kafka's message definitions: JSON with comments, one file for each request and response."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.protocol.kafka.schema import NO_VERSION, Versions

_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


@dataclass(frozen=True)
class FieldDefinition:
    """One field. `fields` is None unless its type is a structure, or an array of structures, defined here."""

    name: str
    type: str
    versions: Versions
    nullable: Versions
    tag: int | None
    ignorable: bool
    default: Any
    fields: tuple[FieldDefinition, ...] | None

    @property
    def item_type(self) -> str:
        """Return the type without the sign of an array."""
        return self.type.removeprefix("[]")


@dataclass(frozen=True)
class MessageDefinition:
    """One request or response."""

    api_key: int
    name: str
    flexible: Versions
    valid: Versions
    fields: tuple[FieldDefinition, ...]


def read_definition(directory: Path, name: str, valid: Versions) -> MessageDefinition:
    """Return the definition of a message as far as it concerns these versions."""
    text = _COMMENT.sub("", (directory / f"{name}.json").read_text())
    known = json.loads(text)
    assert "commonStructs" not in known, f"{name} has common structures, which this tool does not read"
    return MessageDefinition(
        api_key=known["apiKey"],
        name=known["name"],
        flexible=Versions.parse(known["flexibleVersions"]),
        valid=valid,
        fields=_fields(known["fields"], valid),
    )


def _fields(listed: list[dict[str, Any]], scope: Versions) -> tuple[FieldDefinition, ...]:
    found = (_field(each, scope) for each in listed)
    return tuple(each for each in found if each is not None)


def _field(known: dict[str, Any], scope: Versions) -> FieldDefinition | None:
    """Return the field with its versions cut to those of its scope; None if it has none of them."""
    versions = _intersection(Versions.parse(known["versions"]), scope)
    if versions == NO_VERSION:
        return None
    assert known.get("taggedVersions", known["versions"]) == known["versions"], f"{known['name']} is tagged at times"
    return FieldDefinition(
        name=known["name"],
        type=known["type"],
        versions=versions,
        nullable=_intersection(Versions.parse(known.get("nullableVersions", "none")), versions),
        tag=known.get("tag"),
        ignorable=bool(known.get("ignorable", False)),
        default=known.get("default"),
        fields=_fields(known["fields"], versions) if "fields" in known else None,
    )


def _intersection(one: Versions, other: Versions) -> Versions:
    both = Versions(max(one.first, other.first), min(one.last, other.last))
    return both if both.first <= both.last else NO_VERSION
