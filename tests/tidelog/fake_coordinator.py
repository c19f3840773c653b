"""The coordinators of a `FakeCluster`: the brokers' own rules of groups, over a register in memory."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from cluster.groups.commit_sequences import CommitSequences
from cluster.groups.effects import Answer, GroupEffect, Joined, StoreGroup, Synced
from cluster.groups.group import Group, GroupSettings, GroupState
from cluster.groups.member import JoinRequest, Protocol
from tidelog.errors import (
    BrokerError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    MemberIdRequiredError,
    NonEmptyGroupError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    UnknownTopicOrPartitionError,
)
from tidelog.groups.assignment.consumer_protocol import decode_subscription
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import (
    CommittedPartition,
    Coordinator,
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupMember,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeftMember,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchPartition,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tidelog.protocol.messages import Request, Response

if TYPE_CHECKING:
    from tests.tidelog.fake_cluster import FakeCluster

Waiter = asyncio.Future["Joined | Synced"]
#: Kafka's `offset.metadata.max.bytes`.
MAX_METADATA_BYTES = 4096


class FakeCoordinator:
    """The coordinators of all brokers in one object; `broker_of` names the coordinator of a group.

    missing     groups that have no coordinator for now
    loading     groups whose coordinator is still loading
    unheard     topics that the coordinators do not know yet
    committed   committed offsets by group
    history     every accepted commit, in order
    epochs      the number of elections of a coordinator, by group
    """

    def __init__(self, cluster: FakeCluster, settings: GroupSettings | None = None) -> None:
        self.groups: dict[str, Group] = {}
        self.committed: dict[str, dict[TopicPartition, OffsetCommitPartition]] = defaultdict(dict)
        self.history: list[tuple[str, TopicPartition, int]] = []
        self.missing: set[str] = set()
        self.loading: set[str] = set()
        self.unheard: set[str] = set()
        self.settings = settings or GroupSettings(initial_delay_ms=100)
        self._cluster = cluster
        self.epochs: dict[str, int] = defaultdict(int)
        self._sequences: dict[str, CommitSequences] = {}
        self._at: dict[str, int] = {}
        self._ids = itertools.count(1)

    def broker_of(self, group_id: str) -> int:
        """Return the group's coordinator, which stays the same while its broker is alive."""
        live = [broker for broker, alive in self._cluster.live.items() if alive]
        if self._at.get(group_id) not in live:
            self._elect(group_id, live[0])
        return self._at[group_id]

    def _elect(self, group_id: str, broker: int) -> None:
        self._at[group_id] = broker
        self.epochs[group_id] += 1
        self._sequences[group_id] = CommitSequences()

    def move(self, group_id: str, *, forget: bool = False) -> int:
        """Move the group to the next broker, with its state, or (`forget`) only with its committed offsets."""
        before = self.broker_of(group_id)
        live = [broker for broker, alive in self._cluster.live.items() if alive]
        self._elect(group_id, live[(live.index(before) + 1) % len(live)])
        if (group := self.groups.get(group_id)) is not None:
            self._settle(group, group.close())
            if forget:
                del self.groups[group_id]
        return self._at[group_id]

    async def handle(self, broker: int, code: int, request: Request) -> Response:
        """`code`: refuse it with that, whatever it is."""
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(tuple(self._where(key, code) for key in request.keys))
        if isinstance(request, ListGroupsRequest):
            return self._list(broker, request, code)
        if isinstance(request, DescribeGroupsRequest | DeleteGroupsRequest):
            (group_id,) = request.groups
        else:
            group_id = request.group_id  # type: ignore[attr-defined]
        error: BrokerError | None = None
        if broker != self.broker_of(group_id):
            error = NotCoordinatorError()
        elif group_id in self.loading:
            error = CoordinatorLoadInProgressError()
        code = error.code if error else code
        match request:
            case JoinGroupRequest():
                return JoinGroupResponse(code) if code else await self._join(request)
            case SyncGroupRequest():
                return SyncGroupResponse(code) if code else await self._sync(request)
            case HeartbeatRequest():
                return HeartbeatResponse(code or self._heartbeat(request))
            case LeaveGroupRequest():
                return LeaveGroupResponse(code) if code else self._leave(request)
            case OffsetCommitRequest():
                return self._commit(request, code)
            case OffsetFetchRequest():
                return self._fetch(request, code)
            case OffsetDeleteRequest():
                return OffsetDeleteResponse(code) if code else self._delete_offsets(request)
            case DescribeGroupsRequest():
                return DescribeGroupsResponse((self._describe(group_id, code),))
            case DeleteGroupsRequest():
                return DeleteGroupsResponse((DeletedGroup(group_id, code or self._delete(group_id)),))
        raise AssertionError(request)

    def _where(self, group_id: str, code: int) -> Coordinator:
        if code or group_id in self.missing:
            return Coordinator(group_id, code or CoordinatorNotAvailableError.code)
        broker = self.broker_of(group_id)
        return Coordinator(group_id, 0, broker, "fake", 1000 + broker, epoch=self.epochs[group_id])

    # --- members -----------------------------------------------------------------------------------

    def _group(self, group_id: str) -> Group:
        return self.groups.setdefault(group_id, Group(group_id, self.settings))

    async def _join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        group = self._group(request.group_id)
        candidate = f"{request.group_instance_id or 'member'}-{next(self._ids)}"
        asked = JoinRequest(
            request.member_id,
            request.group_instance_id,
            "tidelog",
            "/fake",
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocol_type,
            tuple(Protocol(each.name, each.metadata) for each in request.protocols),
            request.group_instance_id is None,
            candidate,
        )
        try:
            joined = await self._wait(group, lambda waiter, now_ms: group.join(asked, waiter, now_ms))
        except MemberIdRequiredError as error:
            return JoinGroupResponse(error.code, member_id=candidate)
        except BrokerError as error:
            return JoinGroupResponse(error.code, member_id=request.member_id)
        assert isinstance(joined, Joined)
        return JoinGroupResponse(
            0,
            joined.generation,
            joined.protocol_type,
            joined.protocol,
            joined.leader,
            joined.member_id,
            tuple(JoinGroupMember(*each) for each in joined.members),
            joined.skip_assignment,
        )

    async def _sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        group = self._group(request.group_id)
        assignments = {each.member_id: each.assignment for each in request.assignments}
        who = (request.member_id, request.group_instance_id, request.generation_id)
        how = (request.protocol_type, request.protocol_name, assignments)
        try:
            synced = await self._wait(group, lambda waiter, now_ms: group.sync(*who, *how, waiter, now_ms))
        except BrokerError as error:
            return SyncGroupResponse(error.code)
        assert isinstance(synced, Synced)
        return SyncGroupResponse(0, synced.protocol_type, synced.protocol, synced.assignment)

    async def _wait(self, group: Group, begin: Callable[[Waiter, int], list[GroupEffect]]) -> Joined | Synced:
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._settle(group, begin(waiter, self._now_ms()))
        return await waiter

    def _heartbeat(self, request: HeartbeatRequest) -> int:
        who = (request.member_id, request.group_instance_id, request.generation_id)
        try:
            self._group(request.group_id).heartbeat(*who, self._now_ms())
        except BrokerError as error:
            return error.code
        return 0

    def _leave(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        group, left = self._group(request.group_id), []
        for each in request.members:
            code = 0
            try:
                self._settle(group, group.leave(each.member_id, each.group_instance_id, self._now_ms()))
            except BrokerError as error:
                code = error.code
            left.append(LeftMember(each.member_id, each.group_instance_id, code))
        return LeaveGroupResponse(0, tuple(left))

    def _settle(self, group: Group, outcomes: list[GroupEffect]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, StoreGroup):
                self._settle(group, group.stored(outcome.number, None, self._now_ms()))
            elif isinstance(outcome, Answer):
                waiter = outcome.waiter
                assert isinstance(waiter, asyncio.Future)
                if not waiter.done() and isinstance(outcome.outcome, BrokerError):
                    waiter.set_exception(outcome.outcome)
                elif not waiter.done():
                    waiter.set_result(outcome.outcome)
        if (deadline_ms := group.next_deadline_ms()) is not None:
            loop = asyncio.get_running_loop()
            loop.call_at(max(loop.time() + 0.001, deadline_ms / 1000), self._time_passed, group)

    def _time_passed(self, group: Group) -> None:
        if self.groups.get(group.group_id) is group:
            deadline_ms = group.next_deadline_ms()
            if deadline_ms is not None and self._now_ms() >= deadline_ms:
                self._settle(group, group.time_passed(self._now_ms()))
            elif deadline_ms is not None:
                asyncio.get_running_loop().call_at(deadline_ms / 1000 + 0.001, self._time_passed, group)

    def _now_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)

    # --- offsets -----------------------------------------------------------------------------------

    def _commit(self, request: OffsetCommitRequest, code: int) -> OffsetCommitResponse:
        sequences, is_copy = self._sequences[request.group_id], False
        if not code:
            who = (request.member_id, request.group_instance_id, request.generation_id)
            try:
                if request.coordinator_epoch not in (-1, self.epochs[request.group_id]):
                    raise NotCoordinatorError
                is_copy = sequences.is_acknowledged(request.committer_id, request.sequence)
                self._group(request.group_id).check_commit(*who, self._now_ms())
            except BrokerError as error:
                code = error.code
        shown = []
        for each in request.partitions:
            too_large = len(each.committed_metadata.encode()) > MAX_METADATA_BYTES
            unheard = each.topic in self.unheard
            outcome = code or (
                UnknownTopicOrPartitionError.code if unheard else OffsetMetadataTooLargeError.code if too_large else 0
            )
            if not outcome and not is_copy:
                tp = TopicPartition(each.topic, each.partition)
                self.committed[request.group_id][tp] = each
                self.history.append((request.group_id, tp, each.committed_offset))
            shown.append(CommittedPartition(each.topic, each.partition, outcome))
        if request.committer_id and not code:
            sequences.accept(request.committer_id, request.sequence, self._now_ms())
            if not any(each.error_code for each in shown):
                sequences.acknowledge(request.committer_id, request.sequence)
        return OffsetCommitResponse(tuple(shown))

    def _fetch(self, request: OffsetFetchRequest, code: int) -> OffsetFetchResponse:
        if code:
            return OffsetFetchResponse(code)
        known = self.committed[request.group_id]
        wanted = known if request.partitions is None else [(each.topic, each.partition) for each in request.partitions]
        shown = []
        for tp in (TopicPartition(*each) for each in wanted):
            if (found := known.get(tp)) is None:
                shown.append(OffsetFetchPartition(*tp, 0))
            else:
                shown.append(
                    OffsetFetchPartition(
                        *tp, 0, found.committed_offset, found.committed_leader_epoch, found.committed_metadata
                    )
                )
        return OffsetFetchResponse(0, tuple(shown))

    def _delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        if self._state(request.group_id) is None:
            return OffsetDeleteResponse(GroupIdNotFoundError.code)
        group, shown = self.groups.get(request.group_id), []
        read = {
            topic
            for member in (group.members.values() if group else ())
            for topic in decode_subscription(member.protocols[0].metadata).topics
        }
        for each in request.partitions:
            code = GroupSubscribedToTopicError.code if each.topic in read else 0
            if not code:
                self.committed[request.group_id].pop(TopicPartition(each.topic, each.partition), None)
            shown.append(CommittedPartition(each.topic, each.partition, code))
        return OffsetDeleteResponse(0, tuple(shown))

    # --- administration ----------------------------------------------------------------------------

    def _state(self, group_id: str) -> GroupState | None:
        """None: there is no such group."""
        group = self.groups.get(group_id)
        if group is not None and group.members:
            return group.state
        return GroupState.EMPTY if self.committed.get(group_id) else None

    def _list(self, broker: int, request: ListGroupsRequest, code: int) -> ListGroupsResponse:
        mine = [name for name in {**self.groups, **self.committed} if self.broker_of(name) == broker]
        if code or self.loading.intersection(mine):
            return ListGroupsResponse(code or CoordinatorLoadInProgressError.code)
        states = {name: state for name in mine if (state := self._state(name))}
        listed = [
            ListedGroup(name, self.groups[name].protocol_type if name in self.groups else "", state.value)
            for name, state in states.items()
            if not request.states or state.value in request.states
        ]
        return ListGroupsResponse(0, tuple(listed))

    def _describe(self, group_id: str, code: int) -> DescribedGroup:
        state, group = self._state(group_id), self.groups.get(group_id)
        if code or state is None or group is None:
            return DescribedGroup(group_id, code, "Dead" if state is None else state.value)
        members = tuple(
            DescribedMember(
                each.member_id, each.instance_id, each.client_id, each.client_host, each.protocols[0].metadata,
                each.assignment,
            )
            for each in group.members.values()
        )  # fmt: skip
        return DescribedGroup(group_id, 0, state.value, group.protocol_type, group.protocol, members)

    def _delete(self, group_id: str) -> int:
        state, group = self._state(group_id), self.groups.get(group_id)
        if state is None:
            return GroupIdNotFoundError.code
        if group is not None and group.members:
            return NonEmptyGroupError.code
        self.groups.pop(group_id, None)
        self.committed.pop(group_id, None)
        return 0
