"""Events about many partitions pause after each step, so that the event loop is never occupied for long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest

from cluster.controller import steps
from cluster.controller.effects import Effect, Pause
from cluster.controller.steps import in_steps, pause_after
from tests.cluster.controller_stage import Cluster, broker, short
from tests.executed_lines import executed_lines
from tidelog.model import TopicPartition

STEP = 20
FEW, MANY = 4 * STEP, 12 * STEP


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "STEP", STEP)


class Stepwise(Cluster):
    """Counts the pauses, and the lines of Python that are executed from one pause to the next."""

    def __init__(self, *broker_ids: int) -> None:
        self.pauses = 0
        self.lines = [0]
        super().__init__(*broker_ids)

    def play(self, effects: Iterable[Effect]) -> None:
        super().play(self._counted(iter(effects)))

    def _counted(self, effects: Iterator[Effect]) -> Iterator[Effect]:
        step: list[Effect] = []

        def take_step() -> None:
            for effect in effects:
                step.append(effect)
                if isinstance(effect, Pause):
                    return

        while True:
            self.lines.append(executed_lines(take_step))
            yield from step
            if not step or not isinstance(step.pop(), Pause):
                return
            self.pauses += 1
            step.clear()


def cluster_of(partitions: int) -> Stepwise:
    cluster = Stepwise(1, 2, 3)
    cluster.create("wide", *[(1 + n % 3, 1 + (n + 1) % 3, 1 + (n + 2) % 3) for n in range(partitions)])
    cluster.settle()
    return cluster


def all_of(cluster: Cluster) -> list[TopicPartition]:
    return cluster.context.topic_partitions()


def create(cluster: Cluster) -> None:
    cluster.create("wider", *[(1, 2, 3)] * len(all_of(cluster)))


def begin_another_term(cluster: Cluster) -> None:
    cluster.begin_term(2)


def lose_a_broker(cluster: Cluster) -> None:
    cluster.die(1)


def start_a_broker_again(cluster: Cluster) -> None:
    cluster.come(broker(1, 50))


def start_a_broker_that_may_lack_records(cluster: Cluster) -> None:
    cluster.come(short(1, 50))


def shut_a_broker_down(cluster: Cluster) -> None:
    cluster.play(cluster.controller.shutdown_wanted(1))


def change_settings(cluster: Cluster) -> None:
    cluster.play(cluster.controller.configs_changed({"wide": {"retention.ms": "5"}}))


def change_every_isr(cluster: Cluster) -> None:
    for tp in all_of(cluster):
        cluster.leader_writes_isr(tp, cluster.states[tp].state.leader)
    cluster.play(cluster.controller.states_read(cluster.states, cluster.context.ids_of(["wide"])))


def elect_preferred_leaders(cluster: Cluster) -> None:
    cluster.play(cluster.controller.elections_wanted(all_of(cluster)))


def lose_a_log_directory(cluster: Cluster) -> None:
    cluster.play(cluster.controller.log_directory_failed([1]))


def move_every_replica(cluster: Cluster) -> None:
    assignment = cluster.context.topics["wide"]
    cluster.assign(assignment.reassigned({n: assignment.assigned(n).toward((2, 3)) for n in assignment.partitions}))


def add_partitions(cluster: Cluster) -> None:
    before = cluster.topics["wide"]
    count = len(before.partitions)
    added = dict.fromkeys(range(count, 2 * count), (1, 2, 3))
    cluster.assign(replace(before, partitions={**before.partitions, **added}))


def delete(cluster: Cluster) -> None:
    cluster.play(cluster.controller.deletions_wanted(["wide"]))


def forget(cluster: Cluster) -> None:
    cluster.play(cluster.controller.topic_removed("wide"))


EVENTS = [
    create,
    begin_another_term,
    lose_a_broker,
    start_a_broker_again,
    start_a_broker_that_may_lack_records,
    shut_a_broker_down,
    change_settings,
    change_every_isr,
    elect_preferred_leaders,
    lose_a_log_directory,
    move_every_replica,
    add_partitions,
    delete,
    forget,
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_longest_step_of_an_event_is_the_same_for_more_partitions(event: Callable[[Cluster], None]) -> None:
    longest: list[int] = []
    for partitions in (FEW, MANY):
        cluster = cluster_of(partitions)
        cluster.pauses, cluster.lines = 0, [0]
        event(cluster)
        assert cluster.pauses >= partitions / STEP / 3, "a broker leads a third of the partitions"
        longest.append(max(cluster.lines))
    few, many = longest
    # A step may also look at each partition, for example to sort them. A decision takes more than 100 lines.
    assert many - few <= 12 * (MANY - FEW)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_event_about_few_partitions_has_no_pause(event: Callable[[Cluster], None]) -> None:
    cluster = cluster_of(3)
    event(cluster)
    cluster.settle()
    assert cluster.pauses == 0


@pytest.mark.parametrize("count", [0, 1, STEP - 1, STEP, STEP + 1, 3 * STEP])
def test_steps_hold_each_item_once_and_pause_after_whole_ones(count: int) -> None:
    taken = list(in_steps(iter(range(count))))
    assert [item for step in taken for item in step] == list(range(count))
    assert all(0 < len(step) <= STEP for step in taken)
    pauses = [pause for step in taken for pause in pause_after(step)]
    assert pauses == [Pause()] * (count // STEP)


def test_items_may_be_removed_where_they_came_from_during_a_step() -> None:
    items = set(range(2 * STEP))
    for step in in_steps(items):
        items.difference_update(step)
    assert not items


def steps_of(effects: Iterator[Effect]) -> Iterator[None]:
    """Run an event, and yield at each of its pauses."""
    return (None for effect in effects if isinstance(effect, Pause))


def test_topic_that_becomes_readable_never_seems_to_be_gone() -> None:
    """A list of all topics without it would make brokers set its logs aside."""
    cluster = cluster_of(FEW)
    assignment = cluster.topics["wide"]
    late = replace(assignment, topic="late", topic_id="id-late")
    other = replace(assignment, topic="earlier", topic_id="id-earlier")
    cluster.context.unreadable_topics = {"late"}
    pauses = 0
    for _ in steps_of(cluster.controller.topics_changed({"wide": assignment, "late": late, "earlier": other}, {})):
        pauses += 1
        assert "late" in cluster.controller.every_topic()
        assert cluster.context.unreadable_topics or cluster.context.partitions[TopicPartition("late", FEW - 1)]
    assert pauses > 2 * FEW / STEP and not cluster.context.unreadable_topics


def test_failed_broker_is_not_alive_at_any_pause() -> None:
    cluster = cluster_of(FEW)
    remaining = {broker_id: cluster.live[broker_id] for broker_id in (2, 3)}
    pauses = 0
    for _ in steps_of(cluster.controller.brokers_changed(remaining)):
        pauses += 1
        assert 1 not in cluster.context.brokers
    assert pauses > FEW / STEP


def test_reassignment_is_completed_only_after_its_replicas_are_told() -> None:
    cluster = cluster_of(2)
    wide = cluster.context.topics["wide"]
    cluster.assign(wide.reassigned({n: wide.assigned(n).toward((2, 3)) for n in range(2)}))
    first = cluster.context.partitions[TopicPartition("wide", 0)]
    assert first.reassignment is not None
    cluster.context.put(replace(first, reassignment=first.reassignment.with_confirmation()))
    assert cluster.controller.replica_deletion.completed_assignment("wide") is None
    cluster.settle()
    cluster.answer_stops()
    cluster.settle()
    assert not cluster.context.topics["wide"].removing
