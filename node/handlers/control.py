"""What the controller asks of a broker, and what anybody asks of the controller."""

from __future__ import annotations

from typing import Protocol

from node.metadata_cache import MetadataCache
from node.partition_commands import PartitionCommands
from node.replicas import Replicas
from node.topic_commands import TopicCommands
from tidelog.control_messages import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from tidelog.errors import StaleControllerEpochError


class ControllerFace(Protocol):
    """The controller's shell inside this process, which answers NOT_CONTROLLER while another broker holds the seat."""

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse: ...

    @property
    def topics(self) -> TopicCommands: ...
    @property
    def partitions(self) -> PartitionCommands: ...


async def update_metadata(
    metadata: MetadataCache, replicas: Replicas, request: UpdateMetadataRequest, deadline_ms: int
) -> UpdateMetadataResponse:
    """Take over the controller's picture, and leave what is not this broker's in it."""
    if not replicas.admit_controller(request):
        return UpdateMetadataResponse(StaleControllerEpochError.code)
    replicas.brokers_changed(request.live_brokers)
    replicas.reconfigure(metadata.update(request))
    await replicas.leave(request.partitions, deadline_ms)
    return UpdateMetadataResponse(0)
