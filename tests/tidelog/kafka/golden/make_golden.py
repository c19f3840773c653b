"""Write golden.jsonl and frames.jsonl: messages of Kafka's protocol as kafka-python and kio encode them.

    pip install kafka-python==3.0.12 kio==0.6.5
    python tests/tidelog/kafka/golden/make_golden.py

The values are made from kafka-python's description of each message, not from Tidelog's, so that a field that Tidelog
lacks, or places in a wrong version, changes the bytes. kio has no versions that Kafka 4 dropped. Where both encoders
have a version, their bytes must be equal. More than nine lines in ten must be those of both encoders.
"""

from __future__ import annotations

import datetime
import io
import json
import types
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import kio.serial
from kio.index import UnknownEntity, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from tidelog.protocol.kafka.apis import APIS

KAFKA_PYTHON = f"kafka-python {installed('kafka-python')}"
KIO = f"kio {installed('kio')}"
OUTPUT = Path(__file__).with_name("golden.jsonl")
FRAMES = Path(__file__).with_name("frames.jsonl")
#: The messages whose whole frames are written: with and without tagged fields in their headers.
FRAMED = (("Heartbeat", 3), ("Heartbeat", 4), ("ApiVersions", 2), ("ApiVersions", 3), ("Fetch", 12))
INTEGERS = ("int8", "int16", "int32", "int64")
LONG = 130
#: Fields that kafka-python calls otherwise than Kafka, by the structure.
RENAMED = {
    "MetadataResponse": "cluster_authorized_operations",
    "MetadataResponseTopic": "topic_authorized_operations",
    "DescribeClusterResponse": "cluster_authorized_operations",
}


def kafka_name(struct: Any, field: Any) -> str:
    """Return Kafka's name of a field."""
    if field.name != "authorized_operations":
        return str(field.name)
    owner = struct._name if struct._type_str in ("request", "response") else struct.type_str
    return RENAMED.get(owner, field.name)


def kafka_python_class(name: str) -> Any:
    """Return kafka-python's class of a message."""
    for package in ("admin", "consumer", "metadata", "producer"):
        found = getattr(import_module(f"kafka.protocol.{package}"), name, None)
        if found is not None:
            return found
    raise LookupError(name)


class Values:
    """Makes the values of one message in JSON's types; bytes and UUIDs are hexadecimal strings.

    full    every field has a value of its own that is not its default
    least   arrays are empty, nullable fields are null, numbers are negative, tagged fields are absent
    long    strings and arrays of numbers are so long that a compact length takes two bytes
    """

    def __init__(self, variant: str, version: int) -> None:
        self._variant = variant
        self._version = version
        self._number = 0

    def struct(self, struct: Any) -> dict[str, Any]:
        present = [field for field in struct.fields.values() if field.for_version_q(self._version)]
        if self._variant == "least":
            present = [field for field in present if field.tag is None]
        return {kafka_name(struct, field): self._field(field) for field in present}

    def _field(self, field: Any) -> Any:
        if self._variant == "least" and field.nullable_for_version_q(self._version):
            return None
        if field.name == "error_code":
            return 0 if self._variant == "least" else 6
        if field.is_array():
            return self._array(field)
        return self.struct(field) if field.is_struct() else self._simple(field.type_str, field.name)

    def _array(self, field: Any) -> list[Any]:
        if self._variant == "least":
            return []
        inner = field.array_of
        if field.is_struct_array():
            return [self.struct(inner) for _ in range(1 if self._variant == "long" else 2)]
        kind = field.type_str.removeprefix("[]")
        count = LONG if self._variant == "long" and kind.startswith("int") else 2
        return [self._simple(kind, field.name) for _ in range(count)]

    def _simple(self, kind: str, name: str) -> Any:
        self._number += 1
        number = self._number
        if kind == "bool":
            return self._variant != "least"
        if kind == "bitfield":
            return 0 if self._variant == "least" else number
        if kind in INTEGERS:
            return -number if self._variant == "least" and not name.endswith("_ms") else number
        if kind == "uuid":
            return (bytes(16) if self._variant == "least" else bytes(range(number % 200, number % 200 + 16))).hex()
        text = {"least": "", "full": f"{name} ä {number}", "long": f"{name} {number} ".ljust(LONG, "x")}[self._variant]
        return text if kind == "string" else text.encode().hex()


def for_kafka_python(struct: Any, values: dict[str, Any], cls: Any, version: int) -> Any:
    """Return kafka-python's object with these values."""
    converted = {}
    for field in struct.fields.values():
        name = kafka_name(struct, field)
        if name in values:
            converted[field.name] = _for_kafka_python(field, values[name], version)
    return cls(version=version, **converted)


def _for_kafka_python(field: Any, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.is_struct_array():
        return [for_kafka_python(field.array_of, each, field.data_class, version) for each in value]
    if field.is_struct():
        return for_kafka_python(field, value, field.data_class, version)
    if field.type_str in ("bytes", "records"):
        return bytes.fromhex(value)
    if field.type_str == "uuid":
        return uuid.UUID(value)
    if field.type_str == "bitfield":
        return {bit for bit in range(32) if value >> bit & 1}
    return value


def for_kio(cls: Any, values: dict[str, Any]) -> Any:
    """Return kio's object with these values."""
    hints = get_type_hints(cls)
    converted = {}
    for field in fields(cls):
        name = field.name if field.name in values else f"{field.name}_ms"
        if name in values:
            converted[field.name] = _for_kio(hints[field.name], field.metadata.get("kafka_type"), values[name])
    return cls(**converted)


def _for_kio(hint: Any, kind: str | None, value: Any) -> Any:
    if value is None:
        return None
    if get_origin(hint) in (types.UnionType,) or type(None) in get_args(hint):
        hint = next(each for each in get_args(hint) if each is not types.NoneType)
    if get_origin(hint) is tuple:
        return tuple(_for_kio(get_args(hint)[0], kind, each) for each in value)
    if is_dataclass(hint):
        return for_kio(hint, value)
    match kind:
        case "error_code":
            return ErrorCode(value)
        case "uuid":
            return None if value == bytes(16).hex() else uuid.UUID(value)
        case "bytes" | "records":
            return bytes.fromhex(value)
        case "timedelta_i32" | "timedelta_i64":
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            return datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
    return value


def kio_bytes(key: int, kind: str, version: int, values: dict[str, Any]) -> bytes | None:
    """Return kio's encoding; None if kio does not have this version, or refuses the value."""
    load = load_request_schema if kind == "Request" else load_response_schema
    try:
        cls = load(key, version)
    except UnknownEntity:
        return None
    buffer = io.BytesIO()
    kio.serial.entity_writer(cls)(buffer, for_kio(cls, values))
    return buffer.getvalue()


def lines() -> Iterator[dict[str, Any]]:
    """Yield each distinct pair of value and bytes once, with the versions that share it."""
    for api in APIS:
        for kind in ("Request", "Response"):
            cls = kafka_python_class(f"{api.name}{kind}")
            found: dict[str, dict[str, Any]] = {}
            for version in range(api.valid.first, api.valid.last + 1):
                variants = ["full", "least"]
                if version == api.valid.last and api.flexible_from is not None:
                    variants.append("long")
                for variant in variants:
                    values = Values(variant, version).struct(cls._struct)
                    body = for_kafka_python(cls._struct, values, cls, version).encode(version=version)
                    by_kio = kio_bytes(api.key, kind, version, values)
                    if by_kio not in (None, body):
                        raise AssertionError(f"{cls.name} {version} {variant}: {body.hex()} {by_kio.hex()}")
                    encoders = [KAFKA_PYTHON] if by_kio is None else [KAFKA_PYTHON, KIO]
                    line = {"message": cls.name, "versions": [version], "encoders": encoders}
                    line |= {"value": values, "bytes": body.hex()}
                    same = json.dumps(line | {"versions": []})
                    found.setdefault(same, line | {"versions": []})["versions"].append(version)
            yield from found.values()


def frames() -> Iterator[dict[str, Any]]:
    """Yield whole frames with their headers."""
    for name, version in FRAMED:
        for kind in ("Request", "Response"):
            cls = kafka_python_class(f"{name}{kind}")
            values = Values("full", version).struct(cls._struct)
            for client_id in ("kcat ä", None) if kind == "Request" else ("",):
                message = for_kafka_python(cls._struct, values, cls, version)
                header = {"client_id": client_id} if kind == "Request" else {}
                message.with_header(correlation_id=77, **header)
                frame = message.encode(header=True, framed=True)
                yield {"message": cls.name, "version": version, **header, "value": values, "bytes": frame.hex()}


def text_of(lines: Iterable[dict[str, Any]]) -> str:
    """Return JSON lines."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def check_encoders(golden: list[dict[str, Any]]) -> None:
    """Raise AssertionError if too many lines are those of kafka-python only, because its bytes prove less."""
    of_both = sum(KIO in line["encoders"] for line in golden)
    if of_both <= 0.9 * len(golden):
        raise AssertionError(f"only {of_both} of {len(golden)} lines are those of two encoders")


if __name__ == "__main__":
    golden = list(lines())
    check_encoders(golden)
    OUTPUT.write_text(text_of(golden))
    FRAMES.write_text(text_of(frames()))
