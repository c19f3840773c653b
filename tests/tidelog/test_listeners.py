"""Test the text form of a broker's listeners."""

from __future__ import annotations

import pytest

from tidelog.model import Endpoint
from tidelog.protocol.listeners import Listener


@pytest.mark.parametrize("text", ["KAFKA://h:9092", "KAFKA_HOST_2://[::1]:9092", "REPLICATION://10.0.0.7:65535"])
def test_a_listener_is_written_as_it_is_read(text: str) -> None:
    assert str(Listener.parse(f" {text} ")) == text


def test_its_name_and_its_address_stand_apart() -> None:
    assert Listener.parse("KAFKA://[::1]:9092") == Listener("KAFKA", Endpoint("::1", 9092))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h:1",
        "KAFKA:h:1",
        "KAFKA://h",
        "KAFKA_://h:1",
        "kafka://h:1",
        "REPLICATION_2://h:1",
        "TIDELOG://h:1",
        "X://h:1",
    ],
)
def test_other_listener_names_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|names no listener"):
        Listener.parse(text)
