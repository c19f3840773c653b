"""InitProducerId: the ids of idempotent producers."""

from __future__ import annotations

from node.kafka.calls import Call, NativeHandler, Outcome, converted
from tidelog.errors import BrokerError
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.messages.producers import InitProducerIdRequest, InitProducerIdResponse


class ProducerTranslation:
    """The translation of InitProducerId; `handle` is the broker's own handler."""

    def __init__(self, handle: NativeHandler) -> None:
        self._handle = handle

    def init_producer_id(self, request: InitProducerIdRequest, call: Call) -> Outcome:
        """Return a new producer id.

        A producer that asks for the next epoch of its id (KIP-360) gets a new id as well, because no broker keeps the
        epochs of idempotent producers.
        """
        outcome = self._handle(native.InitProducerIdRequest(request.transactional_id), call.context)

        def convert(response: native.InitProducerIdResponse) -> InitProducerIdResponse:
            return InitProducerIdResponse(
                error_code=response.error_code,
                producer_id=response.producer_id,
                producer_epoch=response.producer_epoch,
            )

        return converted(outcome, convert)

    @staticmethod
    def init_producer_id_error(
        request: InitProducerIdRequest, error: BrokerError, version: int
    ) -> InitProducerIdResponse:
        """Return the response that carries this error."""
        return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
