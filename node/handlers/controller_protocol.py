"""The interface through which handlers pass requests to the controller in this process."""

from __future__ import annotations

from typing import Protocol

from node.controller.partition_commands import PartitionCommands
from node.controller.topic_commands import TopicCommands
from tidelog.protocol.control_messages import ControlledShutdownRequest, ControlledShutdownResponse


class ControllerProtocol(Protocol):
    """The controller part of this process, which answers NOT_CONTROLLER while another broker is the controller."""

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse: ...

    @property
    def topics(self) -> TopicCommands: ...
    @property
    def partitions(self) -> PartitionCommands: ...
