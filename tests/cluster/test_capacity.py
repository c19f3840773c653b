"""A broker is given no more partitions than it may hold."""

from __future__ import annotations

import pytest

from cluster.controller.replicas.capacity import BrokerCapacity
from tidelog.errors import PolicyViolationError


def test_broker_takes_partitions_up_to_the_limit() -> None:
    capacity = BrokerCapacity({1: 4, 2: 3}, 5)
    capacity.add("a", [1, 2, 2])
    with pytest.raises(
        PolicyViolationError,
        match=r"topic 'b': broker 2 cannot take 1 more partitions, because it holds 5 and may hold 5 ",
    ):
        capacity.add("b", [2])


def test_refused_partitions_are_not_counted() -> None:
    capacity = BrokerCapacity({1: 4}, 5)
    with pytest.raises(PolicyViolationError, match="cannot take 2 more partitions"):
        capacity.add("a", [3, 1, 1])
    capacity.add("a", [1, 3, 3, 3, 3, 3])
    with pytest.raises(PolicyViolationError, match="it holds 5 "):
        capacity.add("a", [3, 1])


def test_refusal_names_the_setting_and_the_next_step() -> None:
    with pytest.raises(PolicyViolationError) as refused:
        BrokerCapacity({}, 4_000).add("wide", [1] * 10_000)
    assert str(refused.value) == (
        "topic 'wide': broker 1 cannot take 10,000 more partitions, because it holds 0 and may hold 4,000 "
        "(max.broker.partitions); choose fewer partitions or other brokers, add brokers, or raise the setting"
    )


def test_broker_beyond_a_lowered_limit_takes_no_more() -> None:
    capacity = BrokerCapacity({1: 9}, 5)
    capacity.add("a", [])
    capacity.add("a", [2])
    assert capacity.without_room([1, 2]) == {1}
    with pytest.raises(PolicyViolationError, match="it holds 9 and may hold 5 "):
        capacity.add("a", [1])
