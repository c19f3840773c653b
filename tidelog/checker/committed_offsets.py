"""I17: a group's committed offset is a register, of its generation alone, and each partition has one owner.

Whoever commits must raise a partition's offset from commit to commit and never use a value twice for two purposes; then
the values alone tell which commit a reader saw, and no search is needed: two sorted lists a partition, O(m log m) for m
events. Times are of one clock, in any unit.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tidelog.checker import group_operations
from tidelog.checker.facts import Facts, Source
from tidelog.checker.findings import seconds
from tidelog.checker.invariant import Ending, Handler, Invariant
from tidelog.checker.outcomes import Outcome
from tidelog.checker.timeline import RunningMax
from tidelog.frozen import frozen
from tidelog.model import TopicPartition


@frozen
class Commit:
    """One attempt to commit one partition's offset.

    done         when its outcome was known to the committer; of an unknown one it means nothing
    generation   in whose name; −1: of no member
    """

    group: str
    tp: TopicPartition
    offset: int
    outcome: Outcome
    invoked: float
    done: float
    generation: int = -1


@frozen
class Fetched:
    """What a reader was answered, from whatever broker; −1: nothing is committed. Errors are no answers."""

    group: str
    tp: TopicPartition
    offset: int
    invoked: float
    done: float


@frozen
class Assigned:
    """A member was told that it owns these in a generation: all of them, also those that it had before."""

    group: str
    member: str
    generation: int
    tps: frozenset[TopicPartition]
    at: float


@frozen
class Broken:
    """What may not have been, and those who saw it."""

    tp: TopicPartition
    says: str
    operations: Sequence[Commit | Fetched | Assigned]

    def __str__(self) -> str:
        return "\n    ".join([f"{self.tp}: {self.says}", *map(str, self.operations)])


class Register:
    """The committed offset of one group and partition."""

    def __init__(self) -> None:
        self._promised = RunningMax()
        self._shown = RunningMax()
        self._commits: list[Commit] = []
        self._fetches: list[Fetched] = []
        #: When a value was asked for first, by an attempt that was not refused.
        self._first_asked: dict[int, float] = {}

    def commit(self, commit: Commit) -> None:
        self._commits.append(commit)
        if commit.outcome is Outcome.OK:
            self._promised.add(commit.done, commit.offset)
        if commit.outcome is not Outcome.FAILED:
            asked = self._first_asked.get(commit.offset, math.inf)
            self._first_asked[commit.offset] = min(commit.invoked, asked)

    def fetch(self, fetch: Fetched) -> None:
        self._fetches.append(fetch)
        self._shown.add(fetch.done, fetch.offset)

    def went_back(self, fetches: Iterable[Fetched]) -> Iterator[Broken]:
        """A fetch sees at least what was committed, and what any other fetch has seen, before it was asked for."""
        for fetch in fetches:
            least, seen = self._promised.before(fetch.invoked), self._shown.before(fetch.invoked)
            here = f"{fetch.group}'s committed offset was read as {fetch.offset}"
            if least is not None and fetch.offset < least:
                yield Broken(fetch.tp, f"{here}, after {least} was committed", (self._commit_of(least), fetch))
            elif seen is not None and fetch.offset < seen:
                earlier = next(each for each in self._fetches if each.offset == seen and each.done < fetch.invoked)
                yield Broken(fetch.tp, f"{here}, after {seen} was read", (earlier, fetch))

    def out_of_nothing(self, invoked: Mapping[int, float]) -> Iterator[Broken]:
        """Nor does it see what nobody had asked for, or what was refused, by its end: for when all commits are known.

        `invoked`: when values were asked for by committers that never said how it ended.
        """
        for fetch in self._fetches:
            asked = min(self._first_asked.get(fetch.offset, math.inf), invoked.get(fetch.offset, math.inf))
            if fetch.offset >= 0 and asked > fetch.done:
                refused = [each for each in self._commits if each.offset == fetch.offset]
                here = f"{fetch.group}'s committed offset was read as {fetch.offset}"
                yield Broken(fetch.tp, f"{here}, and nobody had committed it", (*refused, fetch))

    def _commit_of(self, offset: int) -> Commit:
        return next(each for each in self._commits if each.offset == offset and each.outcome is Outcome.OK)


def register_violations(commits: Iterable[Commit], fetches: Iterable[Fetched]) -> Iterator[Broken]:
    """Where the committed offset was no register."""
    registers: dict[tuple[str, TopicPartition], Register] = defaultdict(Register)
    for commit in commits:
        registers[commit.group, commit.tp].commit(commit)
    fetches_of: dict[tuple[str, TopicPartition], list[Fetched]] = defaultdict(list)
    for fetch in fetches:
        registers[fetch.group, fetch.tp].fetch(fetch)
        fetches_of[fetch.group, fetch.tp].append(fetch)
    for key, asked in fetches_of.items():
        yield from registers[key].went_back(asked)
        yield from registers[key].out_of_nothing({})


class Generations:
    """The generations of groups, as members were told of them.

    A generation is over when a later one has been assigned to anybody: one that was announced and never assigned may
    come again, under the same number, from a coordinator that never heard of it.
    """

    def __init__(self) -> None:
        self._begun: dict[str, RunningMax] = {}
        self._owner: dict[tuple[str, int, TopicPartition], Assigned] = {}

    def assign(self, assigned: Assigned) -> Iterator[Broken]:
        """Yields the partitions that another member was told to own in the same generation."""
        self._begun.setdefault(assigned.group, RunningMax()).add(assigned.at, assigned.generation)
        for tp in sorted(assigned.tps):
            first = self._owner.setdefault((assigned.group, assigned.generation, tp), assigned)
            if first.member != assigned.member:
                both = f"{first.member} and {assigned.member} own it in generation {assigned.generation}"
                yield Broken(tp, f"{assigned.group}: {both}", (first, assigned))

    def fence(self, commit: Commit) -> Iterator[Broken]:
        """Yields a commit of a generation that was over before it was begun, if it was accepted."""
        if commit.generation < 0 or commit.outcome is not Outcome.OK or commit.group not in self._begun:
            return
        current = self._begun[commit.group].before(commit.invoked)
        if current is not None and commit.generation < current:
            says = f"{commit.offset} of generation {commit.generation} was accepted in generation {current}"
            later = [each for each in self._owner.values() if (each.group, each.generation) == (commit.group, current)]
            yield Broken(commit.tp, f"{commit.group}: {says}", (*later[:1], commit))


def fencing_violations(commits: Iterable[Commit], assigned: Iterable[Assigned]) -> Iterator[Broken]:
    """Commits of a generation that was over before they were begun, and that were accepted."""
    generations = Generations()
    for each in assigned:
        for _ in generations.assign(each):
            pass
    for commit in commits:
        yield from generations.fence(commit)


def sharing_violations(assigned: Iterable[Assigned]) -> Iterator[Broken]:
    """Partitions that two members were told to own in one generation."""
    generations = Generations()
    for each in assigned:
        yield from generations.assign(each)


class CommittedOffsets(Invariant):
    """I17. A reader that sees a value before it was asked for is found at the end only, when all commits are known."""

    key, name = "I17", "committed offsets are registers"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._registers: dict[tuple[str, TopicPartition], Register] = defaultdict(Register)
        self._generations = Generations()
        self._new_commits: list[Commit] = []
        self._new_fetches: list[Fetched] = []
        self._invoked: dict[tuple[str, TopicPartition], dict[int, float]] = defaultdict(dict)
        self._ended: set[tuple[str, TopicPartition, int]] = set()

    def handlers(self) -> Mapping[type, Handler]:
        return {
            group_operations.CommitInvoked: self._commit_invoked,
            group_operations.CommitOk: lambda _, event: self._committed(event, Outcome.OK),
            group_operations.CommitFailed: lambda _, event: self._committed(event, Outcome.FAILED),
            group_operations.CommitUnknown: lambda _, event: self._committed(event, Outcome.UNKNOWN),
            group_operations.CommittedOk: self._fetched,
            group_operations.Assigned: self._assigned,
        }

    def _commit_invoked(self, _source: Source, event: group_operations.CommitInvoked) -> None:
        self._invoked[event.group, event.tp].setdefault(event.offset, event.t)

    def _committed(
        self,
        event: group_operations.CommitOk | group_operations.CommitFailed | group_operations.CommitUnknown,
        came_to: Outcome,
    ) -> None:
        commit = Commit(event.group, event.tp, event.offset, came_to, event.t0, event.t1, event.generation)
        self._registers[event.group, event.tp].commit(commit)
        self._ended.add((event.group, event.tp, event.offset))
        self._new_commits.append(commit)

    def _fetched(self, _source: Source, event: group_operations.CommittedOk) -> None:
        fetch = Fetched(event.group, event.tp, event.offset, event.t0, event.t1)
        self._registers[event.group, event.tp].fetch(fetch)
        self._new_fetches.append(fetch)

    def _assigned(self, _source: Source, event: group_operations.Assigned) -> None:
        self.tally.observations += 1
        told = Assigned(event.group, event.member, event.generation, frozenset(event.tps), event.t)
        self._tell(self._generations.assign(told))

    def examine(self) -> None:
        commits, self._new_commits = self._new_commits, []
        fetches, self._new_fetches = self._new_fetches, []
        self.tally.observations += len(commits) + len(fetches)
        for commit in commits:
            self._tell(self._generations.fence(commit))
        for fetch in fetches:
            self._tell(self._registers[fetch.group, fetch.tp].went_back([fetch]))

    def conclude(self, ending: Ending) -> None:
        self.examine()
        for (group, tp), register in self._registers.items():
            open_ = self._invoked[group, tp]
            never_ended = {offset: t for offset, t in open_.items() if (group, tp, offset) not in self._ended}
            self._tell(register.out_of_nothing(never_ended))

    def _tell(self, found: Iterator[Broken]) -> None:
        for broken in found:
            if not self.only_counted():
                t = _moment(broken.operations[-1])
                self.violated(broken.tp, t, broken.says, *map(_story, broken.operations))


def _moment(operation: Commit | Fetched | Assigned) -> int:
    return int(operation.at if isinstance(operation, Assigned) else operation.done)


def _story(operation: Commit | Fetched | Assigned) -> str:
    """An operation of a history, whose times are nanoseconds, as proof."""
    if isinstance(operation, Assigned):
        tps = ", ".join(map(str, sorted(operation.tps)))
        who = f"{operation.member} of {operation.group}"
        return f"{who} was assigned {tps} in generation {operation.generation} at {seconds(int(operation.at))}"
    when = f"{seconds(int(operation.invoked))}–{seconds(int(operation.done))}"
    here = f"{operation.group} {operation.tp}, {when}"
    if isinstance(operation, Fetched):
        return f"committed offset read of {here}: {operation.offset}"
    return f"commit to {here}, generation {operation.generation}: {operation.offset}, {operation.outcome}"
