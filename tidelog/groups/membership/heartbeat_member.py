"""The I/O of a group member: it joins, assigns as the leader, and sends heartbeats independently of polls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from tidelog.client.cluster_client import ClusterClient
from tidelog.client.settings import ConsumerSettings
from tidelog.client.tasks.background import SupervisedTask
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

#: Added to the rebalance timeout, because the coordinator answers a join only shortly after that timeout.
_ROUND_GRACE_MS = 5_000


class HeartbeatMember:
    """The tasks of one membership.

    overdue_ms   how long the next poll is overdue (`max_poll_interval_ms`); at most 0 if it is not overdue
    on_change    called when the membership is lost, when the member must join again, and when a heartbeat fails
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
        self._beating = SupervisedTask(
            client.background, f"the heartbeats of group {self._group_id!r}", self._send_heartbeats
        )
        self._leaving: set[asyncio.Task[None]] = set()
        self._assigned_counts: dict[str, int] = {}

    # --- joining -------------------------------------------------------------------------------------

    async def join(self, topics: Collection[str], had: MemberData) -> tuple[TopicPartition, ...] | None:
        """Join the group and, as the leader, assign; return the assigned partitions, and start the heartbeats.

        None if the membership is lost. Raises errors that are final, and TimeoutError if no coordinator is found or the
        coordinator does not answer in time. The coordinator itself limits the wait for other members.
        """
        membership = self.membership
        while True:
            joined = await self._ask(membership.join_request(topics, had))
            assert isinstance(joined, JoinGroupResponse)
            if membership.joined(joined):
                assignments = await self._assign(joined) if membership.leads else ()
                synced = await self._ask(membership.sync_request(assignments))
                assert isinstance(synced, SyncGroupResponse)
                assigned = membership.synced(synced)
                if assigned is not None:
                    self._beating.start()
                    return assigned
            if membership.lost:
                return None

    async def _ask(self, request: JoinGroupRequest | SyncGroupRequest) -> Response:
        """Send a request to the coordinator, and return the answer.

        Finding the coordinator has the usual timeout; the answer may take a whole rebalance.
        """
        now_ms, time_limit_ms = self._client.clock.monotonic_ms(), self._settings.default_api_timeout_ms
        await find_coordinator(self._client, self._group_id, now_ms + time_limit_ms)
        round_ms = self.membership.settings.rebalance_timeout_ms + _ROUND_GRACE_MS
        deadline_ms = now_ms + time_limit_ms + round_ms
        return await ask_coordinator(self._client, self._group_id, request, deadline_ms, time_limit_ms=round_ms)

    async def _assign(self, joined: JoinGroupResponse) -> tuple[SyncGroupAssignment, ...]:
        found = candidates(joined.members)
        topics = topics_of(found)
        self._client.track(*topics)
        await self._client.try_refresh(self._client.clock.monotonic_ms() + self._settings.request_timeout_ms)
        if any(topic not in self._client.view.topics for topic in topics):
            # The answer may belong to a request that was sent before these topics were tracked.
            await self._client.try_refresh(self._client.clock.monotonic_ms() + self._settings.request_timeout_ms)
        self._assigned_counts = self._counts(topics)
        return () if joined.skip_assignment else assign(joined.protocol_name, found, self._assigned_counts)

    def _counts(self, topics: Collection[str]) -> dict[str, int]:
        client = self._client
        return {topic: 0 if client.refusal(topic) else client.view.partition_count(topic) for topic in topics}

    @property
    def group_topics(self) -> Collection[str]:
        """The topics that the group's members subscribe to, if this member is the leader; else empty."""
        return self._assigned_counts.keys() if self.membership.leads else ()

    @property
    def assignment_is_outdated(self) -> bool:
        """Whether this leader must assign again, because topics were created, extended or deleted."""
        return self.membership.leads and self._counts(self._assigned_counts.keys()) != self._assigned_counts

    # --- heartbeats ----------------------------------------------------------------------------------

    async def _send_heartbeats(self) -> None:
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
                    self._leave_in_background()
                    self._on_change()
                else:
                    await self._heartbeat()
            except TidelogError as error:
                if self._overdue_ms() <= 0:
                    _log.warning("a heartbeat failed: %s", error)
                self._on_change()

    def _pause_ms(self) -> int:
        """Return the time (ms) until the next heartbeat, or until the poll becomes overdue if that is earlier."""
        interval_ms = self._settings.heartbeat_interval_ms
        if self.membership.state is not MemberState.STABLE:
            return interval_ms
        return max(1, min(interval_ms, 1 - self._overdue_ms()))

    def _time_limit_ms(self) -> int:
        """Return how long (ms) to wait for an answer: the session timeout, but only until the poll becomes overdue."""
        return max(1, min(self._settings.session_timeout_ms, 1 - self._overdue_ms()))

    async def _heartbeat(self) -> None:
        membership = self.membership
        request = membership.heartbeat_request()
        time_limit_ms = max(1, self._settings.session_timeout_ms // 3)
        deadline_ms = self._client.clock.monotonic_ms() + self._time_limit_ms()
        answer = await ask_coordinator(self._client, self._group_id, request, deadline_ms, time_limit_ms=time_limit_ms)
        assert isinstance(answer, HeartbeatResponse)
        membership.on_heartbeat(request, answer)
        if membership.rejoins or membership.lost:
            self._on_change()

    # --- leaving -------------------------------------------------------------------------------------

    async def leave(self, deadline_ms: int) -> None:
        """End the membership, send LeaveGroup, and wait for the answer until the deadline at most.

        The other members then need not wait for the session timeout. A static member sends nothing, and stays a member
        for the coordinator. A failure of the request is only logged.
        """
        request = self.membership.leave_request()
        self.membership.left()
        if request is not None:
            await self._send_leave(request, deadline_ms)

    def _leave_in_background(self) -> None:
        """End the membership at once, and send the LeaveGroup request in the background.

        The partitions may be assigned to another member before the request is answered. Meanwhile this consumer may
        join again under another member id.
        """
        request = self.membership.leave_request()
        self.membership.left()
        if request is not None:
            deadline_ms = self._client.clock.monotonic_ms() + self._settings.session_timeout_ms
            leaving = self._client.background.run("the LeaveGroup request", self._send_leave(request, deadline_ms))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _send_leave(self, leaving: LeaveGroupRequest, deadline_ms: int) -> None:
        try:
            await ask_coordinator(self._client, self._group_id, leaving, deadline_ms)
        except TidelogError as error:
            _log.warning("the LeaveGroup request failed: %s", error)

    async def stop(self) -> None:
        """Cancel the heartbeats, and the LeaveGroup requests that are being sent, and wait until both have ended.

        The member does not leave its group.
        """
        tasks = [*self._leaving, *self._beating.cancel()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
