"""The listeners of a broker and their advertised addresses."""

from __future__ import annotations

import pytest

from cluster.state import BrokerRegistration
from node.settings.listeners import ListenerEndpoint, parse_listeners, require_own_addresses
from tidelog.errors import ConfigError
from tidelog.model import Endpoint
from tidelog.protocol.listeners import BROKERS, CLIENTS

BOUND = ("KAFKA://0.0.0.0:9092", "KAFKA_HOST://0.0.0.0:9192", "REPLICATION://0.0.0.0:9601")
ADVERTISED = ("KAFKA://broker-1:9092", "KAFKA_HOST://127.0.0.1:9192", "REPLICATION://broker-1:9601")


def test_listener_has_a_bound_and_an_advertised_address() -> None:
    assert parse_listeners(BOUND, ADVERTISED) == (
        ListenerEndpoint("KAFKA", Endpoint("0.0.0.0", 9092), Endpoint("broker-1", 9092)),
        ListenerEndpoint("KAFKA_HOST", Endpoint("0.0.0.0", 9192), Endpoint("127.0.0.1", 9192)),
        ListenerEndpoint("REPLICATION", Endpoint("0.0.0.0", 9601), Endpoint("broker-1", 9601)),
    )


def test_default_advertised_address_is_the_bound_address() -> None:
    clients, brokers = parse_listeners(("KAFKA://10.0.0.7:9092", "REPLICATION://[::1]:9601"), ())
    assert (clients.advertised, brokers.advertised) == (clients.bind, brokers.bind)
    assert (clients.between_brokers, brokers.between_brokers) == (False, True)


def test_every_listener_but_replication_is_for_clients() -> None:
    names = ("KAFKA", "KAFKA_A", "KAFKA_B_2", "REPLICATION")
    listeners = parse_listeners(tuple(f"{name}://127.0.0.1:{9092 + at}" for at, name in enumerate(names)), ())
    assert [each.name for each in listeners if not each.between_brokers] == ["KAFKA", "KAFKA_A", "KAFKA_B_2"]


@pytest.mark.parametrize(
    ("address", "beyond"),
    [("127.0.0.1", False), ("127.3.2.1", False), ("[::1]", False), ("10.0.0.7", True), ("[2001:db8::1]", True)],
)
def test_only_loopback_addresses_are_not_beyond_this_machine(address: str, beyond: bool) -> None:
    clients, _ = parse_listeners((f"KAFKA://{address}:9092", "REPLICATION://127.0.0.1:9601"), ())
    assert clients.beyond_this_machine is beyond


@pytest.mark.parametrize(
    ("listeners", "advertised", "complaint"),
    [
        (BOUND[:2], ADVERTISED[:2], "listeners must have REPLICATION://address:port"),
        (BOUND[1:], ADVERTISED[1:], "listeners must have KAFKA://address:port"),
        (BOUND, ADVERTISED[1:], "advertised_listeners must have an address for KAFKA://0.0.0.0:9092"),
        (BOUND, BOUND, "advertised_listeners must have an address for KAFKA://0.0.0.0:9092"),
        (("KAFKA://[::0]:1", BOUND[2]), ADVERTISED[2:], "must have an address for KAFKA://[::0]:1"),
        (BOUND[::2], ADVERTISED, "advertised_listeners: KAFKA_HOST is not among the listeners"),
        ((*BOUND, BOUND[0]), ADVERTISED, "listeners: KAFKA is listed twice"),
        ((*BOUND, "KAFKA_B://0.0.0.0:9092"), ADVERTISED, "listeners: two listeners have the same address"),
        (
            ("KAFKA://localhost:1", BOUND[2]),
            ADVERTISED[::2],
            "KAFKA must be bound to an IP address, not 'localhost'",
        ),
        (("TIDELOG://127.0.0.1:1", *BOUND), ADVERTISED, "'TIDELOG' is not a listener name"),
        (("TIDELOG_B://127.0.0.1:1", *BOUND), ADVERTISED, "'TIDELOG_B' is not a listener name"),
        (("REPLICATION_B://127.0.0.1:1", *BOUND), ADVERTISED, "'REPLICATION_B' is not a listener name"),
        (("PLAINTEXT://127.0.0.1:1", *BOUND), ADVERTISED, "'PLAINTEXT' is not a listener name"),
        (("KAFKA_://127.0.0.1:1", *BOUND), ADVERTISED, "'KAFKA_' is not a listener name"),
        (("KAFKAS://127.0.0.1:1", *BOUND), ADVERTISED, "'KAFKAS' is not a listener name"),
        ((*BOUND, "KAFKA_B://0.0.0.0:9093"), ADVERTISED, "must have an address for KAFKA_B://0.0.0.0:9093"),
        (("127.0.0.1:1", *BOUND), ADVERTISED, "'127.0.0.1:1' is not NAME://host:port"),
        (("KAFKA://127.0.0.1:0", BOUND[2]), ADVERTISED[2:], "'127.0.0.1:0' is not host:port"),
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
    elsewhere = {CLIENTS: Endpoint("broker-2", 9092), BROKERS: Endpoint("broker-2", 9601)}
    copied = elsewhere | {BROKERS: Endpoint("broker-1", 9601)}
    require_own_addresses(1, listeners, [BrokerRegistration(1, ours), BrokerRegistration(2, elsewhere)])
    with pytest.raises(ConfigError, match="broker 2 already has the address of REPLICATION://broker-1:9601"):
        require_own_addresses(1, listeners, [BrokerRegistration(2, copied)])
