from __future__ import annotations

from typing import Any

import pytest

from tidelog.client.settings import parse_bootstrap
from tidelog.errors import ConfigError, InvalidTopicError
from tidelog.model import Endpoint, validate_topic


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        (" broker-1.example:9092 ", Endpoint("broker-1.example", 9092)),
        ("my_host:1", Endpoint("my_host", 1)),
        ("[::1]:9092", Endpoint("::1", 9092)),
        ("[fe80::1%eth0]:65535", Endpoint("fe80::1%eth0", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, endpoint: Endpoint) -> None:
    assert Endpoint.parse(text) == endpoint
    assert Endpoint.parse(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    "text",
    ["", "a", "a:", ":1", "a:0", "a:65536", "a:１", "http://a:1", "tcp://a:1", "*:1", "[::1:1", "a b:1", "\udcff:1"],
)
def test_invalid_address_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        Endpoint.parse(text)


@pytest.mark.parametrize("servers", [5, b"a:1", [5], {"a:1"}])
def test_bootstrap_servers_of_another_type_are_named(servers: Any) -> None:
    with pytest.raises(ConfigError, match=r"^bootstrap_servers must be 'host:port,…' or a list"):
        parse_bootstrap(servers)


@pytest.mark.parametrize("name", [b"t", 5, ["t"]])
def test_a_topic_of_another_type_is_named(name: Any) -> None:
    with pytest.raises(InvalidTopicError, match=r"^a topic name is a str, not "):
        validate_topic(name)
