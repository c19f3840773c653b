"""Show the settings of a client in `help` and in editors, and its state in `repr`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import TypeVar, get_type_hints

from tidelog.client.settings import BootstrapServers, ClientSettings, setting_fields
from tidelog.model import TopicPartition

C = TypeVar("C", bound=type)

#: A `repr` names at most this many assigned partitions.
_MOST_SHOWN = 5


def shows_settings(settings: type, options: type) -> Callable[[C], C]:
    """Return a decorator that makes `help` and `inspect.signature` of a client show each setting with its default.

    `options` is the TypedDict of the client's `**options`, from which editors and type checkers take the settings.
    """
    hints = get_type_hints(options)
    common = {each.name for each in setting_fields(ClientSettings)}
    parameters = [
        inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        inspect.Parameter(
            "bootstrap_servers",
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=None,
            annotation=BootstrapServers | None,
        ),
        *(
            inspect.Parameter(
                each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name]
            )
            for each in sorted(setting_fields(settings), key=lambda each: each.name in common)
        ),
    ]
    signature = inspect.Signature(parameters, return_annotation=None)

    def show(client: C) -> C:
        client.__init__.__signature__ = signature  # type: ignore[misc]
        return client

    return show


def client_repr(client: object, settings: ClientSettings, *facts: str, closed: bool) -> str:
    """Return `<tidelog.Producer bootstrap_servers='h:9092' client_id='tidelog' closed>` with the client's own facts."""
    kind = type(client)
    package = "tidelog.aio" if kind.__module__.startswith("tidelog.aio.") else kind.__module__.partition(".")[0]
    servers = ",".join(map(str, settings.bootstrap))
    said = [f"bootstrap_servers={servers!r}", f"client_id={settings.client_id!r}", *facts]
    return f"<{package}.{kind.__qualname__} {' '.join([*said, 'closed'] if closed else said)}>"


def assignment_repr(partitions: Collection[TopicPartition]) -> str:
    """Return `{t-0, t-1}`; of more than five partitions, the first five in order and the number of all."""
    shown = ", ".join(map(str, sorted(partitions)[:_MOST_SHOWN]))
    return "{" + shown + (f", … ({len(partitions)} partitions)" if len(partitions) > _MOST_SHOWN else "") + "}"
