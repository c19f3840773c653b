"""A member of a group that speaks Kafka's protocol, in versions that the test chooses."""

from __future__ import annotations

from typing import Any

from tests.node.group_cluster import GROUP, GroupCluster
from tests.node.kafka.kafka_requests import ask
from tidelog.errors import MemberIdRequiredError
from tidelog.protocol.kafka.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)


class KafkaMember:
    """Sends each request to the current coordinator.

    join_version   the version of JoinGroup; the other requests have the last version that is no later than 5
    """

    def __init__(
        self,
        cluster: GroupCluster,
        join_version: int = 9,
        *,
        instance: str | None = None,
        metadata: bytes = b"\0\xffsubscription",
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
    ) -> None:
        self._cluster = cluster
        self.join_version = join_version
        self.instance = instance
        self.metadata = metadata
        self.protocol_type = protocol_type
        self.session_timeout_ms = session_timeout_ms
        self.member_id = ""
        self.generation = -1

    def join_request(self, **more: Any) -> JoinGroupRequest:
        more = {
            "group_id": GROUP,
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": 20_000,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocols": (JoinGroupRequestProtocol(name="range", metadata=self.metadata),),
            "reason": "a test",
        } | more
        return JoinGroupRequest(**more)

    async def ask_to_join(self, **more: Any) -> JoinGroupResponse:
        response = await ask(self._cluster.coordinator, self.join_request(**more), self.join_version)
        assert isinstance(response, JoinGroupResponse)
        return response

    async def join(self) -> JoinGroupResponse:
        response = await self.ask_to_join()
        if response.error_code == MemberIdRequiredError.code:
            self.member_id = response.member_id
            response = await self.ask_to_join()
        if not response.error_code:
            self.member_id, self.generation = response.member_id, response.generation_id
        return response

    async def sync(
        self, assignments: dict[str, bytes] | None = None, version: int = 5, **more: Any
    ) -> SyncGroupResponse:
        more = {"group_instance_id": self.instance} | more if version >= 3 else more
        named = {"protocol_type": self.protocol_type, "protocol_name": "range"} if version >= 5 else {}
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in (assignments or {}).items()
            ),
            **named | more,
        )
        response = await ask(self._cluster.coordinator, request, version)
        assert isinstance(response, SyncGroupResponse)
        return response

    async def settle(self) -> None:
        """Join as the only member, and get an assignment."""
        assert (await self.join()).error_code == 0
        assert (await self.sync({self.member_id: b"all of it"})).error_code == 0

    async def heartbeat(self, version: int = 4) -> int:
        instance = {"group_instance_id": self.instance} if version >= 3 else {}
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.member_id, **instance)
        response = await ask(self._cluster.coordinator, request, version)
        return int(response.error_code)
