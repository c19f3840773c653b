"""A broker is given no more partitions than it may hold."""

from __future__ import annotations

import pytest

from cluster.controller.replicas.capacity import BrokerCapacity
from tidelog.errors import PolicyViolationError


def test_broker_takes_partitions_up_to_the_limit() -> None:
    capacity = BrokerCapacity({1: 4, 2: 3}, 5)
    capacity.add("a", [1, 2, 2])
    with pytest.raises(PolicyViolationError, match=r"topic 'b': broker 2 holds 5 partitions and may hold 5 "):
        capacity.add("b", [2])


def test_refused_partitions_are_not_counted() -> None:
    capacity = BrokerCapacity({1: 4}, 5)
    with pytest.raises(PolicyViolationError, match=r"cannot take 2 more: .* \(?"):
        capacity.add("a", [3, 1, 1])
    capacity.add("a", [1, 3, 3, 3, 3, 3])
    with pytest.raises(PolicyViolationError, match="broker 1 holds 5 "):
        capacity.add("a", [3, 1])


def test_refusal_names_the_setting_and_the_ways_out() -> None:
    with pytest.raises(PolicyViolationError) as refused:
        BrokerCapacity({}, 4_000).add("wide", [1] * 10_000)
    assert str(refused.value) == (
        "topic 'wide': broker 1 holds 0 partitions and may hold 4,000 (max.broker.partitions), so that it cannot take "
        "10,000 more: choose fewer partitions or replicas, add brokers, or raise the setting"
    )


def test_broker_beyond_a_lowered_limit_keeps_its_partitions() -> None:
    capacity = BrokerCapacity({1: 9}, 5)
    capacity.add("a", [])
    capacity.add("a", [2])
    with pytest.raises(PolicyViolationError, match="broker 1 holds 9 partitions and may hold 5 "):
        capacity.add("a", [1])
