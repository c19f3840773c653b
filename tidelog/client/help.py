"""Show the settings of a client in `help` and in editors, and its state in `repr`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar, get_type_hints

from tidelog.client.settings import BootstrapServers, ClientSettings, setting_fields
from tidelog.model import TopicPartition

C = TypeVar("C", bound=type)

#: A `repr` names at most this many assigned partitions.
_MOST_SHOWN = 5
#: The types of a client's parameters that come before its settings.
_FIRST_PARAMETERS: Mapping[str, object] = {"topics": str, "bootstrap_servers": BootstrapServers | None}


def shows_settings(settings: type, options: type) -> Callable[[C], C]:
    """Return a decorator that makes `help` and `inspect.signature` of a client show each setting with its default.

    `options` is the TypedDict of the client's `**options`, from which editors and type checkers take the settings.
    """
    hints = get_type_hints(options)
    common = {each.name for each in setting_fields(ClientSettings)}
    shown = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
        for each in sorted(setting_fields(settings), key=lambda each: each.name in common)
    ]

    def show(client: C) -> C:
        first = [
            each.replace(annotation=_FIRST_PARAMETERS.get(each.name, inspect.Parameter.empty))
            for each in inspect.signature(client.__init__).parameters.values()  # type: ignore[misc]
            if each.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        client.__init__.__signature__ = inspect.Signature([*first, *shown], return_annotation=None)  # type: ignore[misc]
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
