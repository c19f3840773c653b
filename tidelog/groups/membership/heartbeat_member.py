"""A member of a group at work: it joins, leads if it must, and lives by heartbeats that do not depend on its reader."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from tidelog.client.background import SupervisedTask
from tidelog.client.cluster_client import ClusterClient
from tidelog.client.settings import ConsumerSettings
from tidelog.errors import TidelogError
from tidelog.groups.assignment.group_leader import assign, candidates, topics_of
from tidelog.groups.assignment.sticky_user_data import MemberData
from tidelog.groups.coordinator_requests import ask_coordinator, find_coordinator
from tidelog.groups.membership.membership_state import MembershipState, MemberState
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import (
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupAssignment,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tidelog.protocol.messages import Response

_log = logging.getLogger(__name__)

#: The coordinator answers a join when the round is over, and that may take it a moment longer.
_ROUND_GRACE_MS = 5_000


class HeartbeatMember:
    """The tasks of one membership.

    overdue_ms   for how long its reader has not polled beyond what it may; ≤ 0: it is in time
    on_change    called when the membership is lost, or is to join again
    """

    def __init__(
        self,
        client: ClusterClient,
        settings: ConsumerSettings,
        membership: MembershipState,
        overdue_ms: Callable[[], int],
        on_change: Callable[[], object],
    ) -> None:
        self.membership = membership
        self._client = client
        self._settings = settings
        self._group_id = membership.settings.group_id
        self._overdue_ms = overdue_ms
        self._on_change = on_change
        self._beating = SupervisedTask(client.background, f"the heartbeats of group {self._group_id!r}", self._beat)
        self._leaving: set[asyncio.Task[None]] = set()
        self._led: dict[str, int] = {}

    # --- joining -------------------------------------------------------------------------------------

    async def join(self, topics: Collection[str], had: MemberData) -> tuple[TopicPartition, ...] | None:
        """What the next generation assigns; None: the membership is lost. What is final is raised.

        TimeoutError where no coordinator is found; the wait for the others' joining is the coordinator's to end.
        """
        membership = self.membership
        while True:
            joined = await self._ask(membership.join_request(topics, had))
            assert isinstance(joined, JoinGroupResponse)
            if membership.joined(joined):
                assignments = await self._lead(joined) if membership.leads else ()
                synced = await self._ask(membership.sync_request(assignments))
                assert isinstance(synced, SyncGroupResponse)
                assigned = membership.synced(synced)
                if assigned is not None:
                    self._beating.start()
                    return assigned
            if membership.lost:
                return None

    async def _ask(self, request: JoinGroupRequest | SyncGroupRequest) -> Response:
        """Who is not found in time is told of; who was found may take as long as the slowest member does."""
        now_ms, patience_ms = self._client.clock.monotonic_ms(), self._settings.default_api_timeout_ms
        await find_coordinator(self._client, self._group_id, now_ms + patience_ms)
        round_ms = self.membership.settings.rebalance_timeout_ms + _ROUND_GRACE_MS
        deadline_ms = now_ms + patience_ms + round_ms
        return await ask_coordinator(self._client, self._group_id, request, deadline_ms, patience_ms=round_ms)

    async def _lead(self, joined: JoinGroupResponse) -> tuple[SyncGroupAssignment, ...]:
        found = candidates(joined.members)
        topics = topics_of(found)
        self._client.track(*topics)
        await self._client.try_refresh(self._client.clock.monotonic_ms() + self._settings.request_timeout_ms)
        if any(topic not in self._client.view.topics for topic in topics):
            # The answer may have been under way since before the topics were asked for.
            await self._client.try_refresh(self._client.clock.monotonic_ms() + self._settings.request_timeout_ms)
        self._led = self._counts(topics)
        return () if joined.skip_assignment else assign(joined.protocol_name, found, self._led)

    def _counts(self, topics: Collection[str]) -> dict[str, int]:
        client = self._client
        return {topic: 0 if client.refusal(topic) else client.view.partition_count(topic) for topic in topics}

    @property
    def led_topics(self) -> Collection[str]:
        """What the members of its generation are subscribed to, as far as this one is to know."""
        return self._led.keys() if self.membership.leads else ()

    @property
    def misses_partitions(self) -> bool:
        """Whether this leader would assign others by now than it did: topics came, grew or went."""
        return self.membership.leads and self._counts(self._led.keys()) != self._led

    # --- living --------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._pause_ms() / 1000)
            if self.membership.state is not MemberState.STABLE:
                continue
            try:
                if self._overdue_ms() > 0:
                    _log.warning(
                        "group %r: no poll for more than max_poll_interval_ms (%d): this consumer leaves the group "
                        "and joins it again when it polls",
                        self._group_id,
                        self._settings.max_poll_interval_ms,
                    )
                    self._leave_beside()
                    self._on_change()
                else:
                    await self._heartbeat()
            except TidelogError as error:
                if self._overdue_ms() <= 0:
                    _log.warning("a heartbeat was not answered: %s", error)
                self._on_change()

    def _pause_ms(self) -> int:
        """A reader that is overdue between two heartbeats need not be waited for until the next."""
        interval_ms = self._settings.heartbeat_interval_ms
        if self.membership.state is not MemberState.STABLE:
            return interval_ms
        return max(1, min(interval_ms, 1 - self._overdue_ms()))

    def _patience_ms(self) -> int:
        """Nor is a coordinator that does not answer waited for beyond that."""
        return max(1, min(self._settings.session_timeout_ms, 1 - self._overdue_ms()))

    async def _heartbeat(self) -> None:
        membership = self.membership
        request = membership.heartbeat_request()
        patience_ms = max(1, self._settings.session_timeout_ms // 3)
        deadline_ms = self._client.clock.monotonic_ms() + self._patience_ms()
        answer = await ask_coordinator(self._client, self._group_id, request, deadline_ms, patience_ms=patience_ms)
        assert isinstance(answer, HeartbeatResponse)
        membership.heard(request, answer)
        if membership.rejoins or membership.lost:
            self._on_change()

    # --- leaving -------------------------------------------------------------------------------------

    async def leave(self, deadline_ms: int) -> None:
        """Go, so that nobody has to wait until it is missed. A static member's place is kept."""
        request = self.membership.leave_request()
        self.membership.left()
        if request is not None:
            await self._tell(request, deadline_ms)

    def _leave_beside(self) -> None:
        """Gone at once, for whoever reads: what it had may be another's before its leaving is answered, if ever it is.

        It may join again meanwhile, under another id, and lives by its heartbeats then.
        """
        request = self.membership.leave_request()
        self.membership.left()
        if request is not None:
            deadline_ms = self._client.clock.monotonic_ms() + self._settings.session_timeout_ms
            leaving = self._client.background.run("the leaving of a group", self._tell(request, deadline_ms))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _tell(self, leaving: LeaveGroupRequest, deadline_ms: int) -> None:
        try:
            await ask_coordinator(self._client, self._group_id, leaving, deadline_ms)
        except TidelogError as error:
            _log.warning("this consumer's leaving was not heard: %s", error)

    async def stop(self) -> None:
        """No more heartbeats."""
        tasks = [*self._leaving, *self._beating.cancel()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
