"""Check I12: one leader per epoch, one controller per epoch, and each ISR change has a version of its own."""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from tidelog.history.broker_events import BecomeFollower, BecomeLeader, Controller, IsrChange
from tidelog.model import TopicPartition
from verify.checker.facts import Facts, Source
from verify.checker.findings import seconds
from verify.checker.invariant import Handler, Invariant


class _Version(NamedTuple):
    """A version of a partition's state that has a leader or a new ISR; ordered by version."""

    partition_epoch: int
    epoch: int
    evidence: str


class Leadership(Invariant):
    """Check I12. A leader epoch belongs to one process of one broker, because a restarted broker has forgotten its
    followers' positions.

    A broker's leader epochs of a partition never decrease, and its controller epochs increase. Versions of ISR changes
    are distinct and increase for each broker. Leader epochs never decrease with the versions in which a leader was seen
    or the ISR was changed, because a replaced leader cannot change anything. Versions are compared instead of times,
    because a broker that was paused between a compare-and-set and its answer learns of the change late.
    """

    key, name = "I12", "one leader an epoch"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._leaders: dict[tuple[TopicPartition, int], tuple[Source, int]] = {}
        self._epochs: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
        self._controllers: dict[int, tuple[str, int]] = {}
        self._controller_epochs: dict[str, tuple[int, int]] = {}
        self._versions: dict[TopicPartition, list[_Version]] = defaultdict(list)
        self._changes: dict[TopicPartition, dict[int, str]] = defaultdict(dict)
        self._changed: dict[tuple[str, TopicPartition], tuple[int, str]] = {}

    def handlers(self) -> Mapping[type, Handler]:
        return {
            BecomeLeader: self._leads,
            BecomeFollower: lambda source, event: self._follows(source, event.tp, event.epoch, event.t),
            IsrChange: self._isr_changed,
            Controller: self._controls,
        }

    def _leads(self, source: Source, event: BecomeLeader) -> None:
        self._follows(source, event.tp, event.epoch, event.t)
        leader, since = self._leaders.setdefault((event.tp, event.epoch), (source, event.t))
        if (leader.name, leader.life) != (source.name, source.life) and not self.only_counted():
            says = (
                f"broker {source.name} led in epoch {event.epoch} in two of its processes"
                if leader.name == source.name
                else f"brokers {leader.name} and {source.name} led in epoch {event.epoch}"
            )
            proof = (
                f"broker {each.name}, in its process {each.life}, became leader of epoch {event.epoch} at {seconds(at)}"
                for each, at in ((leader, since), (source, event.t))
            )
            self.violated(event.tp, event.t, says, *proof)
        if event.partition_epoch >= 0:
            evidence = (
                f"broker {source.name} led in leader epoch {event.epoch}, partition epoch {event.partition_epoch},"
                f" since {seconds(event.t)}"
            )
            self._is_at(event.tp, event.t, _Version(event.partition_epoch, event.epoch, evidence))

    def _follows(self, source: Source, tp: TopicPartition, epoch: int, t: int) -> None:
        self.tally.observations += 1
        last, at = self._epochs.get((source.name, tp), (epoch, t))
        self._epochs[source.name, tp] = epoch, t
        if epoch < last and not self.only_counted():
            says = f"broker {source.name} went back from leader epoch {last} to {epoch}"
            proof = (
                f"broker {source.name}: epoch {each} at {seconds(when)}" for each, when in ((last, at), (epoch, t))
            )
            self.violated(tp, t, says, *proof)

    def _controls(self, source: Source, event: Controller) -> None:
        self.tally.observations += 1
        name, since = self._controllers.setdefault(event.epoch, (source.name, event.t))
        mine = f"broker {source.name} became controller of epoch {event.epoch} at {seconds(event.t)}"
        if name != source.name and not self.only_counted():
            says = f"brokers {name} and {source.name} were controllers of epoch {event.epoch}"
            self.violated(None, event.t, says, f"broker {name} became controller at {seconds(since)}", mine)
        last, at = self._controller_epochs.get(source.name, (-1, 0))
        self._controller_epochs[source.name] = event.epoch, event.t
        if event.epoch <= last and not self.only_counted():
            says = f"broker {source.name}'s controller epoch did not rise from {last}"
            self.violated(None, event.t, says, f"broker {source.name}: {last} at {seconds(at)}", mine)

    def _isr_changed(self, source: Source, event: IsrChange) -> None:
        if not event.ok:
            return
        self.tally.observations += 1
        evidence = (
            f"broker {source.name} set the ISR to {list(event.isr)} in leader epoch {event.epoch},"
            f" partition epoch {event.partition_epoch}, at {seconds(event.t)}"
        )
        wrong, proof = self._wrong_version(source, event)
        self._changed[source.name, event.tp] = event.partition_epoch, evidence
        if not wrong:
            self._changes[event.tp][event.partition_epoch] = evidence
            self._is_at(event.tp, event.t, _Version(event.partition_epoch, event.epoch, evidence))
        elif not self.only_counted():
            self.violated(event.tp, event.t, wrong, *proof, evidence)

    def _wrong_version(self, source: Source, event: IsrChange) -> tuple[str, list[str]]:
        """Return what is wrong with the version of an ISR change ("": nothing), and the earlier change as evidence."""
        version = event.partition_epoch
        if version <= 0:
            return f"a change of the ISR succeeded without a version ({version})", []
        last, evidence = self._changed.get((source.name, event.tp), (-1, ""))
        if version < last:
            return f"broker {source.name}'s ISR changes went back from partition epoch {last} to {version}", [evidence]
        if version in self._changes[event.tp]:
            return f"two changes of the ISR have the partition epoch {version}", [self._changes[event.tp][version]]
        return "", []

    def _is_at(self, tp: TopicPartition, t: int, version: _Version) -> None:
        """Note a version of the state. Check that epochs never decrease with versions, and that no version has two
        epochs.
        """
        versions = self._versions[tp]
        place = bisect(versions, version)
        versions.insert(place, version)
        for earlier, later in pairwise(versions[max(0, place - 1) : place + 2]):
            is_one = earlier.partition_epoch == later.partition_epoch
            wrong = earlier.epoch != later.epoch if is_one else earlier.epoch > later.epoch
            if wrong and not self.only_counted():
                says = (
                    f"partition epoch {later.partition_epoch} is of leader epoch {later.epoch},"
                    f" and {earlier.partition_epoch} of {earlier.epoch}"
                )
                self.violated(tp, t, says, earlier.evidence, later.evidence)
