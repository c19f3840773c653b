"""Send one kind of request about many partitions to their leaders, and repeat it where errors are retriable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tidelog.client.cluster_client import ClusterClient, is_retriable
from tidelog.client.connections import Peer, Purpose
from tidelog.client.metadata import ClusterView, Leader
from tidelog.errors import (
    BrokerError,
    LeaderNotAvailableError,
    TidelogError,
    TimeoutError,
    UnknownTopicOrPartitionError,
    raise_first,
)
from tidelog.model import TopicPartition
from tidelog.protocol.messages import Request, Response

Q = TypeVar("Q")
A = TypeVar("A")

#: Maximum number of partitions, and of reasons, that an error lists.
_MOST_NAMED = 3

#: The partitions of a request to one leader: (partition, subject, its leader).
Asked = Sequence[tuple[TopicPartition, Q, Leader]]


@dataclass(slots=True)
class Outcomes(Generic[A]):
    """The results so far; each partition is in one of the three mappings.

    answers   of the partitions that have one
    refused   the error that is not retriable, of each partition that has one
    errors    the last retriable error of each partition that has no answer yet
    """

    answers: dict[TopicPartition, A] = field(default_factory=dict)
    refused: dict[TopicPartition, TidelogError] = field(default_factory=dict)
    errors: dict[TopicPartition, TidelogError] = field(default_factory=dict)

    @property
    def unanswered(self) -> dict[TopicPartition, TidelogError]:
        """The error of each partition that has no answer, retriable or not."""
        return self.errors | self.refused


def summary(errors: Mapping[TopicPartition, TidelogError]) -> str:
    """Return the partitions without answer and their errors in one line.

    The line names up to three errors and up to three partitions of each, and says how many more there are.
    """
    by_reason: dict[str, list[TopicPartition]] = {}
    for tp in sorted(errors):
        by_reason.setdefault(str(errors[tp]), []).append(tp)
    lines = [f"{_some(list(map(str, tps)))}: {reason}" for reason, tps in by_reason.items()]
    return _some(lines, "; ", "reasons")


def _some(texts: list[str], separator: str = ", ", what: str = "partitions") -> str:
    left = len(texts) - _MOST_NAMED
    return separator.join(texts[:_MOST_NAMED]) + (f"{separator}and {left} more {what}" if left > 0 else "")


class PerLeaderRequest(Generic[Q, A]):
    """A kind of request: how it is made for one leader, and how the response is read.

    what   the name of the request in error texts
    make   returns the request for the partitions of one leader
    read   yields (partition, error or None, answer) for each partition of the response
    """

    def __init__(
        self,
        what: str,
        make: Callable[[Asked[Q]], Request],
        read: Callable[[Response], Iterable[tuple[TopicPartition, BrokerError | None, A]]],
    ) -> None:
        self.what = what
        self._make = make
        self._read = read

    async def ask(
        self, client: ClusterClient, wanted: Mapping[TopicPartition, Q], timeout_ms: int
    ) -> dict[TopicPartition, A]:
        """Return an answer for every partition, from its leader; repeat retriable errors until the timeout.

        Raises the first error that is not retriable, with the others in `others`. TimeoutError names the partitions
        without an answer. NoBrokersError is raised if no broker was ever reached.
        """
        started_ms = client.clock.monotonic_ms()
        outcomes = await self.try_ask(client, wanted, timeout_ms, until_refused=True)
        raise_first(outcomes.refused.values())
        if outcomes.errors:
            waited_ms = client.clock.monotonic_ms() - started_ms
            raise TimeoutError(f"{self.what}: no answer in {waited_ms} ms for {summary(outcomes.errors)}")
        return outcomes.answers

    async def try_ask(
        self,
        client: ClusterClient,
        wanted: Mapping[TopicPartition, Q],
        timeout_ms: int,
        *,
        until_refused: bool = False,
    ) -> Outcomes[A]:
        """Return the results when all partitions have one, at the timeout, or with `until_refused` at a final error.

        Errors of partitions are not raised. NoBrokersError is raised if no broker was ever reached. Without partitions
        nothing is sent.
        """
        outcomes: Outcomes[A] = Outcomes()
        if not wanted:
            return outcomes
        deadline_ms = client.clock.monotonic_ms() + timeout_ms
        topics = {tp.topic for tp in wanted}
        client.track(*topics)
        outcomes.errors = dict.fromkeys(wanted, LeaderNotAvailableError("no leader is known"))
        await client.wait_for_metadata(deadline_ms)
        if not topics <= client.view.topics.keys():
            await client.try_refresh(deadline_ms)
        attempt = 0
        while True:
            leaders = {tp: client.view.leader_of(*tp) for tp in outcomes.errors}
            await self._round(client, wanted, leaders, outcomes, deadline_ms)
            if until_refused and outcomes.refused:
                return outcomes
            if not outcomes.errors or client.clock.monotonic_ms() >= deadline_ms:
                return outcomes
            client.track(*topics)
            if any(error.stale_metadata for error in outcomes.errors.values()):
                await client.try_refresh(deadline_ms)
            for tp in list(outcomes.errors):
                if gone := client.partition_refusal(tp):
                    outcomes.refused[tp] = gone
                    del outcomes.errors[tp]
            moved = all(client.view.leader_of(*tp) not in (None, leaders[tp]) for tp in outcomes.errors)
            if not moved:
                await client.backoff(attempt, deadline_ms)
                attempt += 1

    async def _round(
        self,
        client: ClusterClient,
        wanted: Mapping[TopicPartition, Q],
        leaders: Mapping[TopicPartition, Leader | None],
        outcomes: Outcomes[A],
        deadline_ms: int,
    ) -> None:
        by_broker: dict[int, list[tuple[TopicPartition, Q, Leader]]] = {}
        for tp, leader in leaders.items():
            if leader is None:
                outcomes.errors[tp] = LeaderNotAvailableError("no leader is known")
            else:
                by_broker.setdefault(leader.broker_id, []).append((tp, wanted[tp], leader))
        for answers in await self._ask_each(client, by_broker, deadline_ms):
            for tp, answer in answers.items():
                if not isinstance(answer, TidelogError):
                    outcomes.answers[tp] = answer
                elif is_retriable(answer):
                    outcomes.errors[tp] = answer
                    continue
                else:
                    outcomes.refused[tp] = type(answer)(f"{self.what} of {tp}: {answer}")
                del outcomes.errors[tp]

    async def _ask_each(
        self, client: ClusterClient, by_broker: Mapping[int, Asked[Q]], deadline_ms: int
    ) -> list[dict[TopicPartition, A | TidelogError]]:
        """Return each broker's answers. All requests are sent before the first answer is awaited."""
        sent = [(asked, self._send(client, broker_id, asked, deadline_ms)) for broker_id, asked in by_broker.items()]
        try:
            return [await self._answers_of(asked, answer) for asked, answer in sent]
        finally:
            for _, answer in sent:
                answer.cancel()

    def _send(
        self, client: ClusterClient, broker_id: int, asked: Asked[Q], deadline_ms: int
    ) -> asyncio.Future[Response]:
        """Return the future answer; start a task only if a connection must be opened first."""

        def moved(view: ClusterView) -> bool:
            return any(view.has_newer_leader(*tp, leader.epoch) for tp, _, leader in asked)

        def call(peer: Peer) -> asyncio.Future[Response]:
            return client.call_leader(peer, self._make(asked), time_limit_ms(), moved)

        def time_limit_ms() -> int:
            return min(max(1, deadline_ms - client.clock.monotonic_ms()), client.settings.request_timeout_ms)

        async def connect_and_call() -> Response:
            return await call(await client.peer(broker_id, time_limit_ms()))

        peer = client.live_peer(broker_id, Purpose.GENERAL)
        return asyncio.ensure_future(connect_and_call()) if peer is None else call(peer)

    async def _answers_of(
        self, asked: Asked[Q], answer: asyncio.Future[Response]
    ) -> dict[TopicPartition, A | TidelogError]:
        """Return the answer or the error of each requested partition."""
        try:
            response = await answer
        except TidelogError as error:
            return {tp: error for tp, _, _ in asked}
        answers = {tp: error or answer for tp, error, answer in self._read(response)}
        left_out = UnknownTopicOrPartitionError("the broker's answer does not contain this partition")
        return {tp: answers.get(tp, left_out) for tp, _, _ in asked}
