"""InitProducerId: the ids of idempotent producers."""

from __future__ import annotations

from tidelog.protocol import messages as native
from tidelog.protocol.kafka.client.translation.translation import Translation, always
from tidelog.protocol.kafka.messages import producers as kafka

#: The timeout of transactions, which only transactional producers use.
_NO_TIMEOUT_MS = 2**31 - 1


def _write(request: native.InitProducerIdRequest, version: int) -> kafka.InitProducerIdRequest:
    return kafka.InitProducerIdRequest(transactional_id=request.transactional_id, transaction_timeout_ms=_NO_TIMEOUT_MS)


def _read(
    response: kafka.InitProducerIdResponse, request: native.InitProducerIdRequest, version: int
) -> native.InitProducerIdResponse:
    return native.InitProducerIdResponse(response.error_code, response.producer_id, response.producer_epoch)


INIT_PRODUCER_ID = Translation(kafka.InitProducerIdRequest, always(0, 4), _write, _read)
