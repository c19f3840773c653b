"""Check I17: a group's committed offset is a register, commits of old generations are refused, and each partition has
one owner.

A committer must increase a partition's offset from commit to commit and use each value once. The values alone then
identify the commit that a reader saw, and no search is needed: two sorted lists per partition, O(m log m) for m events.
A committer that follows a log must go back after an unclean election has removed records; only then is the last commit
searched for. A delayed commit of a Kafka client goes back, too (`delayed_commits.py`). Times are of one clock (ns).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from tidelog.frozen_dataclass import frozen
from tidelog.history.broker_events import BecomeLeader
from tidelog.history.group_operations import Assigned, CommitFailed, CommitInvoked, CommitOk, CommittedOk, CommitUnknown
from tidelog.history.operations import Client
from tidelog.model import TopicPartition
from verify.checker.facts import Facts, Source
from verify.checker.findings import seconds
from verify.checker.invariant import Ending, Handler, Invariant
from verify.checker.invariants.brokers.delayed_commits import Attempt, DelayedCommits, EndOf
from verify.checker.timeline import RunningMax


@frozen
class Violation:
    """A violation, and the operations that prove it. The last operation shows when it happened."""

    tp: TopicPartition
    says: str
    operations: Sequence[Attempt | CommittedOk | Assigned]


class Register:
    """The committed offset of one group and partition."""

    def __init__(self) -> None:
        self._promised = RunningMax()
        self._shown = RunningMax()
        self._attempts: list[Attempt] = []
        #: Each requested value, and the time of the request.
        self._begun: list[tuple[int, int]] = []
        self._fetches: list[CommittedOk] = []
        #: The time of the first request of a value that was not refused.
        self._first_asked: dict[int, float] = {}
        self._delayed = DelayedCommits()

    def begin(self, invoked: CommitInvoked, copies_ms: int) -> None:
        """Add a commit request when it is sent, by a client with this `commit_copies_ms`."""
        self._begun.append((invoked.offset, invoked.t))
        if copies_ms >= 0:
            self._delayed.begin(invoked)

    def commit(self, attempt: Attempt, copies_ms: int, generation: int) -> None:
        """Add the end of a commit request: accepted, refused, or with unknown outcome.

        `generation` is the latest that any member of the group knew by then.
        """
        self._attempts.append(attempt)
        if copies_ms >= 0:
            self._delayed.end(attempt, copies_ms, generation)
        if isinstance(attempt, CommitOk):
            self._promised.add(attempt.t1, attempt.offset)
        if not isinstance(attempt, CommitFailed):
            asked = self._first_asked.get(attempt.offset, math.inf)
            self._first_asked[attempt.offset] = min(attempt.t0, asked)

    def fetch(self, fetch: CommittedOk) -> None:
        """Add the answer to a fetch of the committed offset; −1 means that none is committed."""
        self._fetches.append(fetch)
        self._shown.add(fetch.t1, fetch.offset)

    def is_relevant(self, fetch: CommittedOk) -> bool:
        """Return whether the fetch proves anything: it returned a value, or a commit was acknowledged before its
        request.
        """
        return fetch.offset >= 0 or self._promised.before(fetch.t0) is not None

    def went_back(self, fetch: CommittedOk, losses: Iterable[tuple[int, int]], end_of: EndOf) -> Iterator[Violation]:
        """Yield a violation if a fetch returns less than a value that was committed, or fetched, before its request.

        `losses` are (log end, time) of each leader that began with less than the committed records of the log. After
        such a loss a smaller value may be right, and after a delayed commit of a Kafka client.
        """
        least, seen = self._promised.before(fetch.t0), self._shown.before(fetch.t0)
        most = max((each for each in (least, seen) if each is not None), default=-1)
        if fetch.offset >= most or self._had_to_go_back(fetch, most, losses):
            return
        if self._delayed and self._delayed.explain(fetch, self._attempts, self._fetches, self._begun, end_of):
            return
        here = f"the committed offset of group {fetch.group} was read as {fetch.offset}"
        if least is not None and fetch.offset < least:
            yield Violation(fetch.tp, f"{here}, after {least} was committed", (self._commit_of(least), fetch))
        else:
            earlier = next(each for each in self._fetches if each.offset == seen and each.t1 < fetch.t0)
            yield Violation(fetch.tp, f"{here}, after {seen} was read", (earlier, fetch))

    def _had_to_go_back(self, fetch: CommittedOk, most: int, losses: Iterable[tuple[int, int]]) -> bool:
        """Return whether a value below `most` is right, because the log lost records before the fetch ended.

        A reader of such a log starts again and commits less than before. The request of the fetched value must then
        have begun after the loss, and not before that of the last commit acknowledged before the fetch.
        """
        lost = min((t for end, t in losses if end < most), default=math.inf)
        commits = (each.t0 for each in self._attempts if isinstance(each, CommitOk) and each.t1 < fetch.t0)
        since = max((lost, *commits))
        return any(offset == fetch.offset and since <= t < fetch.t1 for offset, t in self._begun)

    def never_committed(self) -> Iterator[Violation]:
        """Yield a violation for each fetch of a value that was refused, or not requested before the fetch ended.

        All commits must be known, so the call comes at the end.
        """
        ended = {attempt.offset for attempt in self._attempts}
        never_ended: dict[int, float] = {}
        for offset, t in self._begun:
            if offset not in ended:
                never_ended.setdefault(offset, t)
        for fetch in self._fetches:
            asked = min(self._first_asked.get(fetch.offset, math.inf), never_ended.get(fetch.offset, math.inf))
            if fetch.offset >= 0 and asked > fetch.t1:
                refused = [each for each in self._attempts if each.offset == fetch.offset]
                here = f"the committed offset of group {fetch.group} was read as {fetch.offset}"
                yield Violation(fetch.tp, f"{here}, but no client had committed it", (*refused, fetch))

    def returned(self) -> Iterator[Violation]:
        """Yield a violation for each value that was read again although a delayed commit had overwritten it.

        All commits must be known, so the call comes at the end.
        """
        for explained, fetch in self._delayed.returned(self._attempts, self._fetches, self._begun):
            here = f"the committed offset of group {fetch.group} was read as {fetch.offset}"
            yield Violation(fetch.tp, f"{here}, after {explained.offset} had replaced it", (explained, fetch))

    def _commit_of(self, offset: int) -> CommitOk:
        return next(each for each in self._attempts if each.offset == offset and isinstance(each, CommitOk))


class Generations:
    """The generations of groups, as members learned of them.

    A generation is over once a later one has been assigned to any member. A generation that was announced but never
    assigned may come again with the same number, from a coordinator that never learned of it.
    """

    def __init__(self) -> None:
        self._begun: dict[str, RunningMax] = {}
        self._owner: dict[tuple[str, int, TopicPartition], Assigned] = {}

    def assign(self, assigned: Assigned) -> Iterator[Violation]:
        """Note an assignment. Yield a violation for each of its partitions that another member owns in the same
        generation.
        """
        self._begun.setdefault(assigned.group, RunningMax()).add(assigned.t, assigned.generation)
        for tp in sorted(assigned.tps):
            first = self._owner.setdefault((assigned.group, assigned.generation, tp), assigned)
            if first.member != assigned.member:
                both = f"{first.member} and {assigned.member} own it in generation {assigned.generation}"
                yield Violation(tp, f"{assigned.group}: {both}", (first, assigned))

    def known_by(self, group: str, moment: float) -> int:
        """Return the latest generation of the group that any member knew by then; −1: none."""
        known = self._begun[group].until(moment) if group in self._begun else None
        return -1 if known is None else known

    def end_of(self, group: str, generation: int) -> float:
        """Return when a member first learned of a later generation; infinity if none did."""
        if group not in self._begun:
            return math.inf
        moments, latest = self._begun[group].settled()
        return next((t for t, each in zip(moments, latest, strict=True) if each > generation), math.inf)

    def fence(self, commit: CommitOk) -> Iterator[Violation]:
        """Yield a violation if the commit was accepted although its generation was over before its request.

        A commit without a generation (negative) is never a violation.
        """
        if commit.generation < 0 or commit.group not in self._begun:
            return
        current = self._begun[commit.group].before(commit.t0)
        if current is not None and commit.generation < current:
            says = f"{commit.offset} of generation {commit.generation} was accepted in generation {current}"
            later = [each for each in self._owner.values() if (each.group, each.generation) == (commit.group, current)]
            yield Violation(commit.tp, f"{commit.group}: {says}", (*later[:1], commit))


class CommittedOffsets(Invariant):
    """Check I17. A read of a value that no client had committed yet is found only at the end, when all commits are
    known.

    The observations are fetches, because a commit that no client fetches may have been lost.
    """

    key, name = "I17", "committed offsets are registers"

    def __init__(self, facts: Facts) -> None:
        super().__init__(facts)
        self._registers: dict[tuple[str, TopicPartition], Register] = defaultdict(Register)
        self._generations = Generations()
        self._new_attempts: list[Attempt] = []
        self._new_fetches: list[CommittedOk] = []
        self._led: dict[TopicPartition, list[BecomeLeader]] = defaultdict(list)

    def handlers(self) -> Mapping[type, Handler]:
        return {
            CommitInvoked: self._commit_invoked,
            CommitOk: self._attempted,
            CommitFailed: self._attempted,
            CommitUnknown: self._attempted,
            CommittedOk: self._fetched,
            Assigned: self._assigned,
            BecomeLeader: self._leads,
        }

    def _commit_invoked(self, source: Source, event: CommitInvoked) -> None:
        self._registers[event.group, event.tp].begin(event, _copies_ms(source))

    def _attempted(self, source: Source, event: Attempt) -> None:
        generation = self._generations.known_by(event.group, event.t1)
        self._registers[event.group, event.tp].commit(event, _copies_ms(source), generation)
        self._new_attempts.append(event)

    def _fetched(self, _source: Source, event: CommittedOk) -> None:
        self._registers[event.group, event.tp].fetch(event)
        self._new_fetches.append(event)

    def _assigned(self, _source: Source, event: Assigned) -> None:
        self._report(self._generations.assign(event))

    def _leads(self, _source: Source, event: BecomeLeader) -> None:
        self._led[event.tp].append(event)

    def _losses(self, tp: TopicPartition) -> Iterator[tuple[int, int]]:
        """Yield (log end, time) of each leader of a partition that began with less than the committed records."""
        committed = self.facts.of(tp).high_watermarks
        for event in self._led[tp]:
            if event.leo < (committed.before(event.t) or 0):
                yield event.leo, event.t

    def examine(self) -> None:
        attempts, self._new_attempts = self._new_attempts, []
        fetches, self._new_fetches = self._new_fetches, []
        for attempt in attempts:
            if isinstance(attempt, CommitOk):
                self._report(self._generations.fence(attempt))
        for fetch in fetches:
            register = self._registers[fetch.group, fetch.tp]
            self.tally.observations += register.is_relevant(fetch)
            end_of = partial(self._generations.end_of, fetch.group)
            self._report(register.went_back(fetch, self._losses(fetch.tp), end_of))

    def conclude(self, ending: Ending) -> None:
        self.examine()
        for register in self._registers.values():
            self._report(register.never_committed())
            self._report(register.returned())

    def _report(self, found: Iterator[Violation]) -> None:
        for broken in found:
            if not self.only_counted():
                t = _moment(broken.operations[-1])
                self.violated(broken.tp, t, broken.says, *map(_describe, broken.operations))


def _copies_ms(source: Source) -> int:
    return source.header.commit_copies_ms if isinstance(source.header, Client) else -1


def _moment(operation: Attempt | CommittedOk | Assigned) -> int:
    return operation.t if isinstance(operation, Assigned) else operation.t1


def _describe(operation: Attempt | CommittedOk | Assigned) -> str:
    """Return the description of an operation, as evidence."""
    if isinstance(operation, Assigned):
        tps = ", ".join(map(str, sorted(operation.tps)))
        member = f"{operation.member} of {operation.group}"
        return f"{member} was assigned {tps} in generation {operation.generation} at {seconds(operation.t)}"
    here = f"{operation.group} {operation.tp}, {seconds(operation.t0)}–{seconds(operation.t1)}"
    if isinstance(operation, CommittedOk):
        return f"committed offset read of {here}: {operation.offset}"
    error = "ok" if isinstance(operation, CommitOk) else operation.error
    return f"commit to {here}, generation {operation.generation}: {operation.offset}, {error}"
