"""Send the admin's requests to the coordinators of consumer groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from tidelog.client.broker_requests import ask_broker
from tidelog.client.cluster_client import ClusterClient, KnownCoordinator, is_retriable
from tidelog.errors import (
    BrokerError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    InvalidGroupIdError,
    InvalidRequestError,
    TidelogError,
    UnknownMemberIdError,
    error_for,
    raise_first,
)
from tidelog.groups.committed_offsets import commit_entry, found_offset
from tidelog.groups.coordinator_requests import ask_coordinator
from tidelog.groups.descriptions import (
    ConsumerGroupDescription,
    ConsumerGroupListing,
    ConsumerGroupListings,
    ConsumerGroupState,
    MemberToRemove,
    describe_group,
    listing_of,
)
from tidelog.groups.lag import PartitionLag, partition_lags
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.model import OffsetAndMetadata, TopicPartition, validate_topic
from tidelog.protocol.group_messages import (
    CommittedPartition,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    LeavingMember,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from tidelog.protocol.messages import DescribePartition, Request, Response

T = TypeVar("T")

#: How long a list waits for brokers that hang or are still loading their groups; its `errors` names these brokers.
LIST_TIME_LIMIT_MS = 5_000
#: How long a lag waits for leaders; a partition whose leader does not answer has an error. The time suffices to learn
#: that a topic was deleted.
LAG_TIME_LIMIT_MS = 4_000
#: Maximum number of concurrent requests that name one group each.
_MOST_AT_ONCE = 32


class GroupAdmin:
    """Manage groups and their committed offsets. Deadlines are of the client's monotonic clock (ms)."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    async def list(self, states: Iterable[str], deadline_ms: int) -> ConsumerGroupListings:
        """See `Admin.list_consumer_groups`. The client remembers the coordinators of the listed groups."""
        wanted = tuple(dict.fromkeys(map(str, states)))
        client = self._client
        client.track(OFFSETS_TOPIC)
        await client.wait_for_metadata(deadline_ms)
        await client.refresh(deadline_ms)
        brokers = sorted(client.view.brokers)
        patient_ms = min(deadline_ms, client.clock.monotonic_ms() + LIST_TIME_LIMIT_MS)
        answers = await asyncio.gather(*(self._list_one(broker, wanted, patient_ms) for broker in brokers))
        found: dict[str, ConsumerGroupListing] = {}
        errors: dict[int, TidelogError] = {}
        for broker, answer in zip(brokers, answers, strict=True):
            if isinstance(answer, TidelogError):
                errors[broker] = answer
            else:
                found |= {each.group_id: listing_of(each, broker) for each in answer}
        # A later `describe` of these groups then needs no FindCoordinator request.
        client.coordinators |= {name: KnownCoordinator(each.coordinator) for name, each in found.items()}
        view = client.view.topics.get(OFFSETS_TOPIC)
        tps = [TopicPartition(OFFSETS_TOPIC, number) for number in sorted(view.partitions)] if view else []
        leaderless = tuple(tp for tp in tps if client.view.leader_of(*tp) is None)
        return ConsumerGroupListings(tuple(found[name] for name in sorted(found)), errors, leaderless)

    async def _list_one(
        self, broker: int, states: tuple[str, ...], deadline_ms: int
    ) -> tuple[ListedGroup, ...] | TidelogError:
        attempt = 0
        refusal: TidelogError | None = None
        while True:
            try:
                answer = await ask_broker(self._client, broker, ListGroupsRequest(states), deadline_ms)
            except TidelogError as error:
                return refusal or error
            assert isinstance(answer, ListGroupsResponse)
            refusal = error_for(answer.error_code)
            if refusal is None:
                return answer.groups
            if not is_retriable(refusal):
                return refusal
            await self._client.backoff(attempt, deadline_ms)
            attempt += 1

    async def describe(
        self, group_ids: Iterable[str], deadline_ms: int
    ) -> dict[str, ConsumerGroupDescription | TidelogError]:
        """Return each group's description, or its error: the coordinator's, or TimeoutError. Raise no group's error."""
        return await self._each(group_ids, lambda group_id: self._describe_one(group_id, deadline_ms))

    async def _describe_one(self, group_id: str, deadline_ms: int) -> ConsumerGroupDescription:
        answer = await self._ask(group_id, DescribeGroupsRequest((group_id,)), deadline_ms)
        assert isinstance(answer, DescribeGroupsResponse)
        for group in answer.groups:
            if group.group_id == group_id:
                _raise(group_id, group.error_code)
                coordinator = self._client.coordinators.get(group_id)
                return describe_group(group, -1 if coordinator is None else coordinator.broker_id)
        raise InvalidRequestError(f"group {group_id!r}: the coordinator's answer leaves it out")

    async def delete(self, group_ids: Iterable[str], deadline_ms: int) -> dict[str, TidelogError | None]:
        """See `Admin.delete_consumer_groups`."""

        async def delete_one(group_id: str) -> None:
            # A repeated DeleteGroups finds no group if the first answer was lost, so its existence is checked before.
            if (await self._describe_one(group_id, deadline_ms)).state is ConsumerGroupState.DEAD:
                raise GroupIdNotFoundError(f"group {group_id!r} does not exist")
            answer = await self._ask(group_id, DeleteGroupsRequest((group_id,)), deadline_ms)
            assert isinstance(answer, DeleteGroupsResponse)
            for group in answer.groups:
                if group.error_code != GroupIdNotFoundError.code:
                    _raise(group_id, group.error_code)

        done = await self._each(group_ids, delete_one)
        return {group_id: each for group_id, each in done.items()}

    async def remove_members(
        self, group_id: str, members: Sequence[MemberToRemove], deadline_ms: int
    ) -> dict[MemberToRemove, TidelogError | None]:
        """See `Admin.remove_group_members`."""
        if not members:
            return {}
        # A repeated LeaveGroup finds no member if the first answer was lost, so the members are looked up before.
        before = await self._describe_one(group_id, deadline_ms)
        leaving = tuple(LeavingMember(each.member_id, each.group_instance_id) for each in members)
        answer = await self._ask(group_id, LeaveGroupRequest(group_id, leaving), deadline_ms)
        assert isinstance(answer, LeaveGroupResponse)
        _raise(group_id, answer.error_code)
        codes = {(each.member_id, each.group_instance_id or None): each.error_code for each in answer.members}
        outcomes: dict[MemberToRemove, TidelogError | None] = {}
        for each in members:
            code = codes.get((each.member_id, each.group_instance_id), InvalidRequestError.code)
            was_member = each.member_id in before.pending_member_ids or any(map(each.is_of, before.members))
            is_gone = code == UnknownMemberIdError.code and was_member
            outcomes[each] = None if is_gone else _removal_error(group_id, each, code)
        return outcomes

    # --- offsets -------------------------------------------------------------------------------------

    async def offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, deadline_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """See `Admin.list_consumer_group_offsets`."""
        named = None if partitions is None else _named(partitions)
        answer = await self._ask(group_id, OffsetFetchRequest(group_id, named), deadline_ms)
        assert isinstance(answer, OffsetFetchResponse)
        _raise(group_id, answer.error_code)
        raise_first(_refusal(group_id, each.error_code, f"{each.topic}-{each.partition}") for each in answer.partitions)
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        if named is not None:
            found.update(dict.fromkeys(TopicPartition(each.topic, each.partition) for each in named))
        for each in answer.partitions:
            if (at := found_offset(each)) is not None:
                found[TopicPartition(each.topic, each.partition)] = at
        return found

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline_ms: int
    ) -> dict[TopicPartition, TidelogError | None]:
        """See `Admin.alter_consumer_group_offsets`."""
        wanted = tuple(commit_entry(TopicPartition(*tp), each) for tp, each in offsets.items())
        if not wanted:
            return {}
        commit = OffsetCommitRequest(group_id, wanted, committer_id=self._client.random_id(), sequence=0)
        answer = await self._ask(group_id, commit, deadline_ms, find_again=True)
        assert isinstance(answer, OffsetCommitResponse)
        return _outcomes(group_id, answer.partitions)

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], deadline_ms: int
    ) -> dict[TopicPartition, TidelogError | None]:
        """See `Admin.delete_consumer_group_offsets`."""
        named = _named(partitions)
        answer = await self._ask(group_id, OffsetDeleteRequest(group_id, named), deadline_ms)
        assert isinstance(answer, OffsetDeleteResponse)
        _raise(group_id, answer.error_code)
        return _outcomes(group_id, answer.partitions)

    async def lag(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, deadline_ms: int
    ) -> dict[TopicPartition, PartitionLag]:
        """See `Admin.consumer_group_lag`."""
        committed = await self.offsets(group_id, partitions, deadline_ms)
        if partitions is None:
            group = await self._describe_one(group_id, deadline_ms)
            for member in group.members:
                committed |= {tp: None for tp in member.assignment or () if tp not in committed}
        offsets = {tp: None if at is None else at.offset for tp, at in sorted(committed.items())}
        left_ms = max(1, deadline_ms - self._client.clock.monotonic_ms())
        return await partition_lags(self._client, offsets, min(left_ms, LAG_TIME_LIMIT_MS))

    # --- helpers -------------------------------------------------------------------------------------

    async def _ask(self, group_id: str, request: Request, deadline_ms: int, *, find_again: bool = False) -> Response:
        """Return the coordinator's answer. With `find_again`, find the coordinator again first.

        A commit needs the coordinator's epoch, which a list of groups does not tell.
        """
        if not isinstance(group_id, str) or not group_id:
            raise InvalidGroupIdError(f"the group id must be a non-empty str, not {group_id!r}")
        if find_again:
            self._client.coordinators.pop(group_id, None)
        return await ask_coordinator(self._client, group_id, request, deadline_ms)

    async def _each(self, group_ids: Iterable[str], ask: Callable[[str], Awaitable[T]]) -> dict[str, T | TidelogError]:
        names = list(dict.fromkeys((group_ids,) if isinstance(group_ids, str) else group_ids))
        slots = asyncio.Semaphore(_MOST_AT_ONCE)

        async def outcome(group_id: str) -> T | TidelogError:
            async with slots:
                try:
                    return await ask(group_id)
                except TidelogError as error:
                    return error

        return dict(zip(names, await asyncio.gather(*map(outcome, names)), strict=True))


def _named(partitions: Iterable[TopicPartition]) -> tuple[DescribePartition, ...]:
    tps = dict.fromkeys(TopicPartition(*tp) for tp in partitions)
    return tuple(DescribePartition(validate_topic(tp.topic), tp.partition) for tp in tps)


def _outcomes(group_id: str, partitions: Iterable[CommittedPartition]) -> dict[TopicPartition, TidelogError | None]:
    return {
        TopicPartition(each.topic, each.partition): _refusal(
            group_id, each.error_code, f"{each.topic}-{each.partition}", each.error_message
        )
        for each in partitions
    }


def _raise(group_id: str, code: int) -> None:
    if refusal := _refusal(group_id, code):
        raise refusal


def _removal_error(group_id: str, member: MemberToRemove, code: int) -> BrokerError | None:
    error = error_for(code)
    where = f"group {group_id!r}"
    match error:
        case UnknownMemberIdError():
            return UnknownMemberIdError(f"{where} has no member with {member}")
        case FencedInstanceIdError():
            return FencedInstanceIdError(f"{where}: another consumer than {member} has this instance id now")
    return error and type(error)(f"{where}, {member}: {error}")


def _refusal(group_id: str, code: int, partition: str = "", message: str | None = None) -> BrokerError | None:
    """Return the error of a wire code with the group and the partition in its text; None for code 0."""
    error = error_for(code, message or "")
    where = f"group {group_id!r}" + (f", {partition}" if partition else "")
    if isinstance(error, UnknownMemberIdError):
        return UnknownMemberIdError(f"{where}: the group has members, and only its members may commit")
    if isinstance(error, GroupIdNotFoundError):
        return GroupIdNotFoundError(f"{where} does not exist")
    return error and type(error)(f"{where}: {error}")
