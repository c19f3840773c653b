"""The requests that Kafka has no message for, whose bodies are typed messages as they are."""

from __future__ import annotations

from functools import partial

from node.kafka.calls import Call, KafkaApi, NativeHandler, Outcome, converted
from node.net.identity import Identity
from tidelog.errors import BrokerError, InvalidRequestError, ProtocolError, text_for_response
from tidelog.protocol.codec import decode_body, encode_body
from tidelog.protocol.group_messages import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from tidelog.protocol.kafka.extensions import ExtensionRequest, ExtensionResponse, carrier_of
from tidelog.protocol.kafka.schema import Versions
from tidelog.protocol.messages import DescribeReplicasRequest, Request, Response
from tidelog.protocol.operator_messages import (
    BrokerIdentityRequest,
    BrokerIdentityResponse,
    DescribeBrokerRequest,
    DescribeClientsRequest,
    ExamineReplicaRequest,
)

#: The typed requests that can be sent as extensions.
EXTENSION_REQUESTS: tuple[type[Request], ...] = (
    DescribeReplicasRequest,
    ExamineReplicaRequest,
    DescribeBrokerRequest,
    DescribeClientsRequest,
    BrokerIdentityRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    FindCoordinatorRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)


def extension_apis(handle: NativeHandler, identity: Identity) -> list[KafkaApi]:
    """Return the extensions, in front of the broker's handler of typed requests."""
    return [
        KafkaApi(
            carrier_of(cls),
            Versions(*cls.versions),
            partial(_answer, cls, _identify(identity) if cls is BrokerIdentityRequest else handle),
            _error,
        )
        for cls in EXTENSION_REQUESTS
    ]


def _identify(identity: Identity) -> NativeHandler:
    return lambda request, context: BrokerIdentityResponse(identity.cluster_id, identity.broker_id)


def _answer(cls: type[Request], handle: NativeHandler, request: ExtensionRequest, call: Call) -> Outcome:
    try:
        typed = decode_body(request.body, cls, call.version)
    except ProtocolError as error:
        raise InvalidRequestError(str(error)) from None

    def convert(response: Response) -> ExtensionResponse:
        return type(request).response(error_code=0, body=encode_body(response, call.version))

    return converted(handle(typed, call.context), convert)


def _error(request: ExtensionRequest, error: BrokerError, version: int) -> ExtensionResponse:
    """Return the response that carries this error."""
    return type(request).response(error_code=error.code, error_message=text_for_response(error))
