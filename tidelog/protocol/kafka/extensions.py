"""Define the requests that Kafka has no message for, as APIs from number 1000 on in Kafka's frames.

The body of an extension is one byte string, with the fields of a typed message as a msgpack array
(`tidelog.protocol.codec`). A broker lists the extensions in ApiVersions only for clients that name themselves tidelog.
Numbers from 1100 on are those of Kafka's APIs plus 1100: such an extension asks for the same as Kafka's request, but
its messages have more fields.
"""

from __future__ import annotations

from typing import ClassVar

from tidelog.protocol.kafka import schema
from tidelog.protocol.kafka.schema import Int16, Versions, structure
from tidelog.protocol.messages import ApiKey, Request

#: The number of the first extension.
FIRST_EXTENSION = 1000
#: The name by which Tidelog's clients introduce themselves in ApiVersions (KIP-511).
OWN_SOFTWARE = "tidelog"
#: Added to the number of a Kafka API whose extension has more fields.
_MORE_FIELDS = 1100
#: The APIs whose typed requests can be sent as extensions.
EXTENSION_APIS = frozenset(
    {
        ApiKey.DESCRIBE_REPLICAS,
        ApiKey.EXAMINE_REPLICA,
        ApiKey.DESCRIBE_BROKER,
        ApiKey.DESCRIBE_CLIENTS,
        ApiKey.BROKER_IDENTITY,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
    }
)


@structure
class ExtensionResponse(schema.Response):
    """Base class of the responses of extensions. With an `error_code` other than 0 the body is empty."""

    error_code: Int16
    error_message: str | None = None
    body: bytes = b""


@structure
class ExtensionRequest(schema.Request):
    """Base class of the requests of extensions."""

    body: bytes

    response: ClassVar[type[ExtensionResponse]]


_carriers: dict[int, type[ExtensionRequest]] = {}


def extension_number(api: ApiKey) -> int:
    """Return the API number of the extension that carries the typed requests of this API."""
    return api if api >= FIRST_EXTENSION else _MORE_FIELDS + api


def carrier_of(cls: type[Request]) -> type[ExtensionRequest]:
    """Return the class whose instances carry the typed requests of this class."""
    number = extension_number(cls.api)
    if number not in _carriers:
        shared = {"__slots__": (), "api": number, "valid": Versions(*cls.versions), "flexible_from": None}
        name = cls.__name__.removesuffix("Request")
        response = type(f"{name}ExtensionResponse", (ExtensionResponse,), shared)
        _carriers[number] = type(f"{name}ExtensionRequest", (ExtensionRequest,), {**shared, "response": response})
    return _carriers[number]
