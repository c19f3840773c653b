"""What the controller asks of a broker, and what anybody asks of the controller."""

from __future__ import annotations

from typing import Protocol

from node.metadata_cache import MetadataCache
from node.replicas import Replicas
from tidelog.errors import NotControllerError, StaleControllerEpochError
from tidelog.messages import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    CreatedTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletedTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)


class ControllerFace(Protocol):
    """The controller inside this process; `is_controller` while it holds the seat."""

    @property
    def is_controller(self) -> bool: ...

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse: ...
    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse: ...
    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse: ...


class NoController:
    """Stands in until the broker has one of its own."""

    is_controller = False

    async def create_topics(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        raise NotControllerError

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        raise NotControllerError

    async def controlled_shutdown(self, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
        raise NotControllerError


def update_metadata(
    metadata: MetadataCache, replicas: Replicas, request: UpdateMetadataRequest
) -> UpdateMetadataResponse:
    """Take over the controller's picture."""
    if not metadata.admit_controller(request.controller_id, request.controller_epoch):
        return UpdateMetadataResponse(StaleControllerEpochError.code)
    replicas.brokers_changed(request.live_brokers)
    metadata.update(request)
    return UpdateMetadataResponse(0)


async def create_topics(controller: ControllerFace, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Forwarded to the controller; NOT_CONTROLLER for each topic where that is another broker."""
    if controller.is_controller:
        return await controller.create_topics(request)
    code = NotControllerError.code
    return CreateTopicsResponse(tuple(CreatedTopic(topic.name, code) for topic in request.topics))


async def delete_topics(controller: ControllerFace, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Forwarded to the controller; NOT_CONTROLLER for each topic where that is another broker."""
    if controller.is_controller:
        return await controller.delete_topics(request)
    return DeleteTopicsResponse(tuple(DeletedTopic(name, NotControllerError.code) for name in request.topics))


async def controlled_shutdown(
    controller: ControllerFace, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    """Forwarded to the controller; NOT_CONTROLLER where that is another broker."""
    if controller.is_controller:
        return await controller.controlled_shutdown(request)
    return ControlledShutdownResponse(NotControllerError.code)
