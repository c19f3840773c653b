"""Test that `tidelog` and `tidelog.aio` have the same clients with the same names, parameters and defaults."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

import tidelog
import tidelog.aio
from tidelog.client.settings import (
    AdminOptions,
    AdminSettings,
    ConsumerOptions,
    ConsumerSettings,
    ProducerOptions,
    ProducerSettings,
    make_settings,
)
from tidelog.errors import ConfigError

CLIENTS = ["Admin", "Consumer", "Producer"]
#: Further names of the asyncio clients, each with its reason.
ONLY_AIO = {
    "Admin": {"start"},
    "Consumer": {"start"},
    "Producer": {"queues_of", "send_and_wait", "sender", "start"},
}
#: Further names of the synchronous clients: in asyncio a task of `commit` does the same.
ONLY_BLOCKING = {"Admin": set(), "Consumer": {"commit_async"}, "Producer": set()}
TWINS = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}


def names(cls: type) -> dict[str, Any]:
    found = {}
    for each in reversed(cls.__mro__[:-1]):
        found |= {name: value for name, value in vars(each).items() if not name.startswith("_") or name in SPECIAL}
    return found


SPECIAL = {*TWINS, *TWINS.values()}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("client", CLIENTS)
def test_both_have_the_same_names_with_the_same_parameters(client: str) -> None:
    blocking = names(getattr(tidelog, client))
    waiting = {TWINS.get(name, name): value for name, value in names(getattr(tidelog.aio, client)).items()}
    assert waiting.keys() - blocking.keys() <= ONLY_AIO[client]
    assert blocking.keys() - waiting.keys() == ONLY_BLOCKING[client]
    for name in blocking.keys() & waiting.keys():
        assert parameters(blocking[name]) == parameters(waiting[name]), name


@pytest.mark.parametrize("client", CLIENTS)
def test_both_take_the_same_settings(client: str) -> None:
    blocking, waiting = getattr(tidelog, client), getattr(tidelog.aio, client)
    options = [get_type_hints(each.__init__)["options"] for each in (blocking, waiting)]
    assert options[0] == options[1]


@pytest.mark.parametrize(
    ("options", "settings"),
    [(AdminOptions, AdminSettings), (ConsumerOptions, ConsumerSettings), (ProducerOptions, ProducerSettings)],
)
def test_every_setting_has_a_default_and_is_documented_by_its_client(options: Any, settings: Any) -> None:
    checked = {each.name for each in fields(settings) if each.init} - {"bootstrap"}
    assert checked == set(get_type_hints(options))
    if settings is AdminSettings:
        return  # which has none of its own
    documentation = inspect.getdoc(getattr(tidelog, settings.__name__.removesuffix("Settings"))) or ""
    assert [name for name in sorted(checked) if name not in documentation] == []


@pytest.mark.parametrize(
    ("settings", "wrong", "right"),
    [
        (ConsumerSettings, "max_poll_record", "max_poll_records"),
        (ConsumerSettings, "fetch.min.bytes", "fetch_min_bytes"),
        (ConsumerSettings, "isolationLevel", "isolation_level"),
        (ProducerSettings, "delivery_timeout", "delivery_timeout_ms"),
        (ProducerSettings, "buffer_memmory", "buffer_memory"),
        (AdminSettings, "request_timeout", "request_timeout_ms"),
        (AdminSettings, "bootstrap_server", "bootstrap_servers"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(settings: Any, wrong: str, right: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown setting '{wrong}'; did you mean {right}"):
        make_settings(settings, "h:1", {wrong: 1})


def test_unknown_setting_without_a_close_name_lists_the_three_nearest() -> None:
    with pytest.raises(ConfigError) as refused:
        make_settings(ConsumerSettings, "h:1", {"security_protocol": "SASL_SSL"})
    assert str(refused.value) == (
        "unknown setting 'security_protocol'; the nearest are retry_backoff_ms, session_timeout_ms and "
        "enable_auto_commit"
    )
