"""What brokers hold is compared with what they may hold."""

from __future__ import annotations

from tidelog.chaos.resources import as_of_controllers
from tidelog.checker.broker_events import Resources


def test_each_broker_may_have_as_many_files_open_as_the_controller_since_it_may_be_that_later() -> None:
    counts = {1: Resources(1, "baseline", fds=38, purgatory=3), 2: Resources(2, "baseline", fds=47, purgatory=1)}
    found = as_of_controllers(counts)
    assert {broker: (counted.fds, counted.purgatory) for broker, counted in found.items()} == {1: (47, 3), 2: (47, 1)}


def test_of_no_brokers_nothing_is_known() -> None:
    assert as_of_controllers({}) == {}
