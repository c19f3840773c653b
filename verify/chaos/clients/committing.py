"""Commit and read offsets of groups without members. Each group is a register that one committer raises.

Each commit has a value of its own, and values increase, so that a value identifies the commit that a reader has seen.
The values need not be offsets of records, because brokers accept any value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidelog.aio import Consumer
from tidelog.errors import (
    BrokerError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    ProtocolError,
    TidelogError,
    error_for,
)
from tidelog.history.group_operations import (
    CommitFailed,
    CommitInvoked,
    CommitOk,
    CommittedFailed,
    CommittedOk,
    CommitUnknown,
)
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.protocol.group_messages import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from tidelog.protocol.messages import DescribePartition
from verify.chaos.clients.client_context import ClientContext
from verify.chaos.clients.support.brokers import for_each_broker
from verify.chaos.clients.support.lines import Line, Lines
from verify.checker.outcomes import Outcome, commit_outcome, error_name

_TIMEOUT_MS = 2_000
_ELSEWHERE = (NotCoordinatorError, CoordinatorNotAvailableError)
#: More commits than one start of a committer can make.
_COMMITS_OF_A_LIFE = 1 << 32


class Committer:
    """A client that raises the offsets of one group again and again, with pauses of at most twice `pause_s`, or longer
    after an error.

    With `by_request` it works like an old client: it finds the coordinator, commits, and finds the coordinator again
    after an error that may mean another coordinator. Each request is sent once, so that each refusal counts as what it
    is. The value is also the sequence number, so that a commit which the network delays overwrites no later one, also
    after a restart of the process. Without `by_request` a consumer commits, and retries. Values continue above those
    of earlier starts of the process (`life`).
    """

    def __init__(
        self,
        context: ClientContext,
        name: str,
        group: str,
        tps: Sequence[TopicPartition],
        *,
        by_request: bool,
        life: int = 0,
        pause_s: float = 0.02,
    ) -> None:
        self.name = name
        self._context = context
        self._group = group
        self._tps = list(tps)
        self._by_request = by_request
        self._pause_s = pause_s
        self._value = life * _COMMITS_OF_A_LIFE
        self._committer_id = f"{name} of {group}"
        self._history = context.history(name)

    async def run(self) -> None:
        """Commit the next value for all partitions at once, record the outcome for each, and repeat.

        When `context.stopping` is set, finish the current commit, close the history and return.
        """
        try:
            await (self._commit_by_requests() if self._by_request else self._commit_by_client())
        finally:
            self._history.close()

    async def _commit_by_client(self) -> None:
        context = self._context
        async with context.consumer(self.name, group_id=self._group, enable_auto_commit=False) as consumer:
            while not context.stopping.is_set():
                t0 = self._begin()
                try:
                    with context.noticed(self._history, "commit", self._tps):
                        wanted = {tp: OffsetAndMetadata(self._value) for tp in self._tps}
                        await consumer.commit(wanted, context.timeout_ms)
                except TidelogError as error:
                    # The last error does not exclude that an earlier attempt of the client was written.
                    self._ended(dict.fromkeys(self._tps, (Outcome.UNKNOWN, error_name(error))), t0)
                else:
                    self._ended(dict.fromkeys(self._tps, (Outcome.OK, "")), t0)
                await context.pause(0, 2 * self._pause_s)

    async def _commit_by_requests(self) -> None:
        context, coordinator = self._context, ""
        async with context.admin(f"{self.name}-brokers") as admin:
            addresses: list[str] = []
            while not addresses and not context.stopping.is_set():
                try:
                    addresses = list(map(str, (await admin.describe_cluster(_TIMEOUT_MS)).brokers.values()))
                except TidelogError:
                    await context.pause(0.1)
        async with Lines(addresses, context.opener) as lines:
            while not context.stopping.is_set():
                try:
                    coordinator = coordinator or await lines.find_somewhere(self._group, _TIMEOUT_MS)
                except TidelogError:
                    await context.pause(self._pause_s, 2 * self._pause_s)
                    continue
                refusal = await self._commit_once(lines.to(coordinator), lines.epochs[self._group])
                if refusal is not None:
                    if isinstance(refusal, _ELSEWHERE) or not isinstance(refusal, BrokerError):
                        coordinator = ""
                    await context.pause(0.05)
                await context.pause(0, 2 * self._pause_s)

    async def _commit_once(self, line: Line, epoch: int) -> TidelogError | None:
        """Commit the next value in one request to the coordinator of this epoch, and record the outcome of each
        partition. Return the first error, or None if all partitions were committed.
        """
        t0 = self._begin()
        entries = tuple(OffsetCommitPartition(*tp, self._value) for tp in self._tps)
        refusal: TidelogError | None = None
        try:
            with self._context.noticed(self._history, "commit", self._tps):
                request = OffsetCommitRequest(
                    self._group,
                    entries,
                    committer_id=self._committer_id,
                    sequence=self._value,
                    coordinator_epoch=epoch,
                )
                answer = await line.ask(request, _TIMEOUT_MS)
            if not isinstance(answer, OffsetCommitResponse) or len(answer.partitions) != len(entries):
                raise ProtocolError(f"unexpected answer to a commit: {answer!r}")
        except TidelogError as error:
            self._ended(dict.fromkeys(self._tps, (Outcome.UNKNOWN, error_name(error))), t0)
            return error
        ends: dict[TopicPartition, tuple[Outcome, str]] = {}
        for each in answer.partitions:
            refused = error_for(each.error_code)
            refusal = refusal or refused
            name = "" if refused is None else error_name(refused)
            ends[TopicPartition(each.topic, each.partition)] = (commit_outcome([name]) if name else Outcome.OK, name)
        self._ended(ends, t0)
        return refusal

    def _begin(self) -> int:
        """Choose the next value, record for each partition that it is about to be committed, and return the time."""
        self._value += 1
        t0 = self._context.now_ns()
        for tp in self._tps:
            self._history.write(CommitInvoked(self._group, tp, self._value, t0))
        return t0

    def _ended(self, ends: dict[TopicPartition, tuple[Outcome, str]], t0: int) -> None:
        t1, group, value = self._context.now_ns(), self._group, self._value
        for tp, (outcome, name) in ends.items():
            if outcome is Outcome.OK:
                self._history.write(CommitOk(group, tp, value, t0, t1))
            elif outcome is Outcome.FAILED:
                self._history.write(CommitFailed(group, tp, value, name, t0, t1))
            else:
                self._history.write(CommitUnknown(group, tp, value, name, t0, t1))


class CommittedReader:
    """A client that reads the offsets of groups: of each through a consumer, and of all from each broker, coordinator
    or not.
    """

    def __init__(
        self,
        context: ClientContext,
        name: str,
        groups: Sequence[str],
        tps: Sequence[TopicPartition],
        *,
        pause_s: float = 0.1,
    ) -> None:
        self.name = name
        self._context = context
        self._groups = list(groups)
        self._tps = list(tps)
        self._pause_s = pause_s
        self._history = context.history(name)

    async def run(self) -> None:
        """Read committed offsets through all consumers and from all brokers at the same time, and record each answer or
        error.

        When `context.stopping` is set, finish the current requests, close consumers and history, and return.
        """
        consumers = [
            self._context.consumer(self.name, group_id=group, enable_auto_commit=False) for group in self._groups
        ]
        try:
            await self._ask_all(consumers)
        finally:
            for consumer in consumers:
                await consumer.close()
            self._history.close()

    async def _ask_all(self, consumers: Sequence[Consumer]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for group, consumer in zip(self._groups, consumers, strict=True):
                tasks.create_task(self._ask_coordinator(group, consumer))
            tasks.create_task(for_each_broker(self._context, self.name, self._ask_broker))

    async def _ask_coordinator(self, group: str, consumer: Consumer) -> None:
        context = self._context
        while not context.stopping.is_set():
            tp, t0 = context.rng.choice(self._tps), context.now_ns()
            try:
                with context.noticed(self._history, "request for a committed offset", (tp,)):
                    found = (await consumer.committed([tp], context.timeout_ms))[tp]
            except TidelogError as error:
                self._history.write(CommittedFailed(group, tp, error_name(error), t0, context.now_ns()))
            else:
                offset = -1 if found is None else found.offset
                self._history.write(CommittedOk(group, tp, offset, t0, context.now_ns()))
            await context.pause(0, 2 * self._pause_s)

    async def _ask_broker(self, broker_id: int, address: str) -> None:
        context, line = self._context, Line(address, self._context.opener)
        try:
            while not context.stopping.is_set():
                for group in self._groups:
                    if not await self.ask_once(line, group):
                        await context.pause(0.1)
                await context.pause(0, 2 * self._pause_s)
        finally:
            line.close()

    async def ask_once(self, line: Line, group: str) -> bool:
        """Send one OffsetFetch request for the group to the broker of `line`, and record each partition's offset or
        error.

        Return whether the broker answered; an error that it sends counts as an answer.
        """
        context, t0 = self._context, self._context.now_ns()
        wanted = tuple(DescribePartition(*tp) for tp in self._tps)
        try:
            with context.noticed(self._history, "request for committed offsets", self._tps):
                answer = await line.ask(OffsetFetchRequest(group, wanted), context.timeout_ms)
            if not isinstance(answer, OffsetFetchResponse):
                raise ProtocolError(f"unexpected answer to a request for offsets: {answer!r}")
            if refusal := error_for(answer.error_code):
                raise refusal
        except TidelogError as error:
            for tp in self._tps:
                self._history.write(CommittedFailed(group, tp, error_name(error), t0, context.now_ns()))
            return isinstance(error, BrokerError)
        for each in answer.partitions:
            tp, t1 = TopicPartition(each.topic, each.partition), context.now_ns()
            if refusal := error_for(each.error_code):
                self._history.write(CommittedFailed(group, tp, error_name(refusal), t0, t1))
            else:
                self._history.write(CommittedOk(group, tp, each.committed_offset, t0, t1))
        return True
