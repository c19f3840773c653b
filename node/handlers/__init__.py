"""The request handlers, one for each API: a typed request goes in, a typed response comes out, at once or later.

All listeners of a broker share the dispatch table in this module. A handler raises a BrokerError to refuse a whole
request. An error of one partition is answered for that partition alone.
"""

from __future__ import annotations

from node.handlers.control.controller_requests import ControllerRequests
from node.handlers.controller_protocol import ControllerProtocol
from node.handlers.dispatch import HandlerResult, HandlerTable
from node.handlers.inspection.describe_replicas import describe_replicas
from node.handlers.producer_ids import ProducerIdBlocks, ProducerIds
from node.handlers.records.fetch import Fetches
from node.handlers.records.list_offsets import OffsetLookUps, offset_for_leader_epoch
from node.handlers.records.list_offsets_v0 import list_segment_offsets
from node.handlers.records.produce import Produces
from node.metadata.metadata_cache import MetadataCache
from node.net.server import RequestContext, is_for_brokers
from node.replication.replica_manager import ReplicaManager
from tidelog.errors import ClusterAuthorizationFailedError, UnsupportedVersionError
from tidelog.protocol.messages import ApiKey, Request

__all__ = ["Handlers"]


class Handlers:
    """The dispatch table of one broker. `more` adds handlers that some in-memory brokers of the tests leave out."""

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        producer_id_blocks: ProducerIdBlocks,
        controller: ControllerProtocol,
        more: HandlerTable | None = None,
    ) -> None:
        control, fetches = ControllerRequests(replicas), Fetches(replicas)
        producer_ids = ProducerIds(replicas.broker_id, producer_id_blocks)
        self._table: HandlerTable = {
            ApiKey.PRODUCE: Produces(replicas).handle,
            ApiKey.FETCH: fetches.handle,
            ApiKey.LIST_OFFSETS: OffsetLookUps(replicas).list_offsets,
            ApiKey.LIST_SEGMENT_OFFSETS: lambda request, _: list_segment_offsets(replicas, request),
            ApiKey.METADATA: lambda request, context: metadata.describe(request.topics, context.listener),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda request, _: offset_for_leader_epoch(replicas, request),
            ApiKey.INIT_PRODUCER_ID: lambda request, _: producer_ids.handle(request),
            ApiKey.CREATE_TOPICS: lambda request, _: controller.topics.create_topics(request),
            ApiKey.DELETE_TOPICS: lambda request, _: controller.topics.delete_topics(request),
            ApiKey.CREATE_PARTITIONS: lambda request, _: controller.partitions.create_partitions(request),
            ApiKey.ELECT_LEADERS: lambda request, _: controller.partitions.elect_leaders(request),
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda request, _: controller.partitions.alter_reassignments(request),
            ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda request, _: controller.partitions.list_reassignments(request),
            ApiKey.DESCRIBE_REPLICAS: lambda request, _: describe_replicas(replicas, request),
            # `resignations` is read here, in the turn of the event loop in which the request's broker epoch was
            # checked. The coroutine itself starts in a later turn, when the registration may be lost already.
            ApiKey.LEADER_AND_ISR: lambda request, context: control.leader_and_isr(
                request, context, replicas.resignations
            ),
            ApiKey.STOP_REPLICA: lambda request, context: control.stop_replica(request, context, replicas.resignations),
            ApiKey.UPDATE_METADATA: control.update_metadata,
            ApiKey.LOG_ENDS: lambda request, _: control.log_ends(request),
            ApiKey.CONTROLLED_SHUTDOWN: lambda request, _: controller.controlled_shutdown(request),
            **(more or {}),
        }

    def handle(self, request: Request, context: RequestContext) -> HandlerResult:
        """Return the response of the API's handler, or a deferred one, or None if the request wants none.

        Raise the BrokerError with which the request is refused as a whole.
        """
        # The server has checked the listener already. This second check ensures that no client can move a high
        # watermark or a leader.
        if not context.between_brokers and is_for_brokers(request):
            raise ClusterAuthorizationFailedError(
                f"{request.api.name}: only brokers may send this request; it came over a listener for clients"
            )
        handler = self._table.get(request.api)
        if handler is None:
            raise UnsupportedVersionError(f"{request.api.name}: this broker has no handler for it")
        return handler(request, context)
