"""The listeners of a broker and their advertised addresses."""

from __future__ import annotations

import pytest

from cluster.state import BrokerRegistration
from node.settings.listeners import ListenerEndpoint, counterpart, parse_listeners, require_own_addresses
from tidelog.errors import ConfigError
from tidelog.model import Endpoint
from tidelog.protocol.listeners import BROKERS, CLIENTS

BOUND = ("TIDELOG://0.0.0.0:9600", "TIDELOG_HOST://0.0.0.0:9611", "REPLICATION://0.0.0.0:9601")
ADVERTISED = ("TIDELOG://broker-1:9600", "TIDELOG_HOST://127.0.0.1:9611", "REPLICATION://broker-1:9601")


def test_listener_has_a_bound_and_an_advertised_address() -> None:
    assert parse_listeners(BOUND, ADVERTISED) == (
        ListenerEndpoint("TIDELOG", Endpoint("0.0.0.0", 9600), Endpoint("broker-1", 9600)),
        ListenerEndpoint("TIDELOG_HOST", Endpoint("0.0.0.0", 9611), Endpoint("127.0.0.1", 9611)),
        ListenerEndpoint("REPLICATION", Endpoint("0.0.0.0", 9601), Endpoint("broker-1", 9601)),
    )


def test_default_advertised_address_is_the_bound_address() -> None:
    clients, brokers = parse_listeners(("TIDELOG://10.0.0.7:9600", "REPLICATION://[::1]:9601"), ())
    assert (clients.advertised, brokers.advertised) == (clients.bind, brokers.bind)
    assert (clients.between_brokers, brokers.between_brokers) == (False, True)


def test_listeners_for_kafkas_clients_are_recognized_by_their_names() -> None:
    names = ("TIDELOG", "TIDELOG_A", "KAFKA", "KAFKA_A", "KAFKA_B_2", "REPLICATION")
    listeners = parse_listeners(tuple(f"{name}://127.0.0.1:{9600 + at}" for at, name in enumerate(names)), ())
    assert [each.name for each in listeners if each.for_kafka_clients] == ["KAFKA", "KAFKA_A", "KAFKA_B_2"]


@pytest.mark.parametrize(
    ("address", "beyond"),
    [("127.0.0.1", False), ("127.3.2.1", False), ("[::1]", False), ("10.0.0.7", True), ("[2001:db8::1]", True)],
)
def test_only_loopback_addresses_are_not_beyond_this_machine(address: str, beyond: bool) -> None:
    clients, _ = parse_listeners((f"TIDELOG://{address}:9600", "REPLICATION://127.0.0.1:9601"), ())
    assert clients.beyond_this_machine is beyond


@pytest.mark.parametrize(
    ("listeners", "advertised", "complaint"),
    [
        (BOUND[:2], ADVERTISED[:2], "listeners must have REPLICATION://address:port"),
        (BOUND[1:], ADVERTISED[1:], "listeners must have TIDELOG://address:port"),
        (BOUND, ADVERTISED[1:], "advertised_listeners must have an address for TIDELOG://0.0.0.0:9600"),
        (BOUND, BOUND, "advertised_listeners must have an address for TIDELOG://0.0.0.0:9600"),
        (("TIDELOG://[::0]:1", BOUND[2]), ADVERTISED[2:], "must have an address for TIDELOG://[::0]:1"),
        (BOUND[::2], ADVERTISED, "advertised_listeners: TIDELOG_HOST is not among the listeners"),
        ((*BOUND, BOUND[0]), ADVERTISED, "listeners: TIDELOG is listed twice"),
        ((*BOUND, "TIDELOG_B://0.0.0.0:9600"), ADVERTISED, "listeners: two listeners have the same address"),
        (
            ("TIDELOG://localhost:1", BOUND[2]),
            ADVERTISED[::2],
            "TIDELOG must be bound to an IP address, not 'localhost'",
        ),
        (("PLAINTEXT://127.0.0.1:1", *BOUND), ADVERTISED, "'PLAINTEXT' is not a listener name"),
        (("KAFKA_://127.0.0.1:1", *BOUND), ADVERTISED, "'KAFKA_' is not a listener name"),
        (("KAFKAS://127.0.0.1:1", *BOUND), ADVERTISED, "'KAFKAS' is not a listener name"),
        ((*BOUND, "KAFKA://0.0.0.0:9600"), ADVERTISED, "listeners: two listeners have the same address"),
        ((*BOUND, "KAFKA://0.0.0.0:9092"), ADVERTISED, "must have an address for KAFKA://0.0.0.0:9092"),
        (("127.0.0.1:1", *BOUND), ADVERTISED, "'127.0.0.1:1' is not NAME://host:port"),
        (("TIDELOG://127.0.0.1:0", BOUND[2]), ADVERTISED[2:], "'127.0.0.1:0' is not host:port"),
    ],
)
def test_unreachable_and_malformed_listeners_are_refused(
    listeners: tuple[str, ...], advertised: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_listeners(listeners, advertised)
    assert complaint in str(raised.value)


def test_address_of_another_broker_is_refused() -> None:
    listeners = parse_listeners(BOUND, ADVERTISED)
    ours = {listener.name: listener.advertised for listener in listeners}
    elsewhere = {CLIENTS: Endpoint("broker-2", 9600), BROKERS: Endpoint("broker-2", 9601)}
    copied = elsewhere | {BROKERS: Endpoint("broker-1", 9601)}
    require_own_addresses(1, listeners, [BrokerRegistration(1, ours), BrokerRegistration(2, elsewhere)])
    with pytest.raises(ConfigError, match="broker 2 already has the address of REPLICATION://broker-1:9601"):
        require_own_addresses(1, listeners, [BrokerRegistration(2, copied)])


def test_listener_of_the_other_protocol_is_that_of_the_same_network() -> None:
    pairs = {"TIDELOG": "KAFKA", "TIDELOG_HOST": "KAFKA_HOST", "TIDELOG_A_B": "KAFKA_A_B"}
    assert {name: counterpart(name) for name in pairs} == pairs
    assert [counterpart(name) for name in pairs.values()] == list(pairs)
