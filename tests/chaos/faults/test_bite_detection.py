"""Test how effects of a fault are detected."""

from __future__ import annotations

from dataclasses import replace

from tidelog.model import TopicPartition
from verify.chaos.fault import Evidence, PartitionView, View
from verify.chaos.faults.support import bite_detection

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BEFORE = View(
    1,
    {T0: PartitionView(1, 3, (1, 2, 3), 7), T1: PartitionView(2, 5, (2, 3, 1), 9)},
    controller=1,
    controller_epoch=4,
    broker_epochs={1: 11, 2: 12, 3: 13},
)


def evidence(*after: View) -> Evidence:
    return Evidence(1, 2, 3, [BEFORE, *after])


def with_t0(view: PartitionView) -> View:
    return replace(BEFORE, partitions={**BEFORE.partitions, T0: view})


def test_election_is_detected_by_the_epoch_of_the_partitions() -> None:
    elected = evidence(with_t0(PartitionView(2, 4, (2, 3), 8)))
    assert bite_detection.leaders_changed(elected) == "leader epoch 3 → 4 of t/0"
    assert bite_detection.leaders_changed(elected, [T1]) is None
    assert bite_detection.leaders_changed(evidence()) is None


def test_number_of_elections_is_detected_by_the_epoch() -> None:
    elected = evidence(with_t0(PartitionView(2, 7, (2, 3), 8)))
    assert bite_detection.leaders_changed(elected, [T0], times=4) == "leader epoch 3 → 7 of t/0"
    assert bite_detection.leaders_changed(elected, [T0], times=5) is None


def test_broker_that_left_an_isr_and_rejoined_is_detected() -> None:
    back = evidence(with_t0(PartitionView(1, 3, (1, 3), 8)), BEFORE)
    assert bite_detection.left_isr(back) == "broker 2 left the ISR of t/0"
    assert bite_detection.left_isr(back, {3}) is None
    assert bite_detection.left_isr(evidence(BEFORE)) is None


def test_registration_ends_by_removal_or_by_replacement() -> None:
    gone = replace(BEFORE, broker_epochs={1: 11, 2: 12})
    anew = replace(BEFORE, broker_epochs={1: 21, 2: 12, 3: 13})
    assert bite_detection.registered_anew(evidence(gone, BEFORE), {3}) == "the registration of broker 3 ended"
    assert bite_detection.registered_anew(evidence(anew)) == "the registration of broker 1 ended"
    assert bite_detection.registered_anew(evidence(anew), {2}) is None
    assert bite_detection.all_registered_anew(evidence(gone, anew), {1, 3}) == "the registrations of brokers 1, 3 ended"
    assert bite_detection.all_registered_anew(evidence(gone), {1, 3}) is None


def test_returned_broker_is_detected_by_a_new_registration_in_time() -> None:
    gone = replace(BEFORE, t=500_000_000, broker_epochs={1: 11, 2: 12})
    anew = replace(BEFORE, t=2_000_000_000, broker_epochs={1: 11, 2: 12, 3: 33})
    assert (
        bite_detection.registered_again(evidence(gone, anew), {3}, 4_000) == "broker 3 was registered again after 2.0 s"
    )
    assert bite_detection.registered_again(evidence(gone, anew), {3}, 1_500) is None
    assert bite_detection.registered_again(evidence(gone, anew), {1}, 4_000) is None
    assert bite_detection.registered_again(evidence(gone), {3}, 4_000) is None


def test_registrations_are_counted_by_their_epochs() -> None:
    epochs = [{1: 21, 2: 12, 3: 13}, {1: 21, 3: 13}, {1: 21, 2: 22, 3: 13}, {1: 31, 2: 22, 3: 13}]
    seen = evidence(*(replace(BEFORE, broker_epochs=each) for each in epochs))
    assert bite_detection.registrations(seen, 3) == "brokers registered anew 3 times"
    assert bite_detection.registrations(seen, 4) is None


def test_no_broker_counts_as_gone_without_zookeeper_answers() -> None:
    assert bite_detection.registered_anew(evidence(replace(BEFORE, broker_epochs=None))) is None


def test_new_controller_is_detected_by_its_epoch() -> None:
    assert bite_detection.controller_changed(evidence(replace(BEFORE, controller=2, controller_epoch=5))) == (
        "controller epoch 4 → 5"
    )
    assert bite_detection.controller_changed(evidence(replace(BEFORE, controller=-1))) is None


def test_slowness_is_measured_on_acknowledged_requests() -> None:
    assert bite_detection.slowed(replace(evidence(), slowest_ms=1_234.5), 1_000) == "a produce took 1,234 ms"
    assert bite_detection.slowed(replace(evidence(), slowest_ms=10.0), 1_000) is None


def test_pause_is_measured_per_partition() -> None:
    found = bite_detection.paused(replace(evidence(), longest_gap_ms=2_443.1), 1_000)
    assert found == "no produce of a partition was acknowledged for 2,443 ms"
    assert bite_detection.paused(replace(evidence(), longest_gap_ms=900.0), 1_000) is None


def test_nothing_is_detected_without_brokers() -> None:
    everything = evidence(replace(with_t0(PartitionView(2, 4, (2, 3), 8)), broker_epochs={}))
    assert bite_detection.leaders_changed(everything, []) is None
    assert bite_detection.left_isr(everything, ()) is None
    assert bite_detection.registered_anew(everything, ()) is None
    assert bite_detection.all_registered_anew(everything, ()) is None
