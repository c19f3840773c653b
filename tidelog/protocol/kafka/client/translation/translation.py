"""The type of a translation, and what all translations share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.errors import UnsupportedVersionError, error_for
from tidelog.protocol.kafka.schema import Request as KafkaRequest
from tidelog.protocol.kafka.schema import Response as KafkaResponse
from tidelog.protocol.kafka.schema import Versions
from tidelog.protocol.messages import Request, Response

#: The calls that need no extension.
_WORKS = "topics, records, look-ups, groups, settings, elections and reassignments work with any Kafka cluster"


class Translation(NamedTuple):
    """One API as this client speaks it.

    request    the class of the Kafka request
    versions   returns the versions in which a typed request can be written without loss; raises
               UnsupportedVersionError if there is none
    write      returns the Kafka request, given the typed one and the version
    read       returns the typed response, given the Kafka response, the typed request and the version; raises the
               BrokerError of the whole request
    """

    request: type[KafkaRequest]
    versions: Callable[[Any], Versions]
    write: Callable[[Any, int], KafkaRequest]
    read: Callable[[Any, Any, int], Response]


def always(first: int, last: int) -> Callable[[Request], Versions]:
    """Return the function that allows these versions, both ends included, for each request."""
    versions = Versions(first, last)
    return lambda request: versions


def needs_tidelog(request: Request, broker: str = "this broker") -> UnsupportedVersionError:
    """Return the error of a request that Kafka has no message for, and that was to be sent to a broker of Kafka."""
    return UnsupportedVersionError(
        f"{request.api.name}: this call needs a cluster of Tidelog, and {broker} is not a broker of Tidelog; {_WORKS}"
    )


def raise_error_of(response: KafkaResponse) -> None:
    """Raise the error of the whole request, if the response has one."""
    if error := error_for(getattr(response, "error_code", 0), getattr(response, "error_message", None) or ""):
        raise error
