"""Send a request that only one particular broker can answer."""

from __future__ import annotations

from tidelog.client.cluster_client import ClusterClient, is_retriable
from tidelog.errors import BrokerNotAvailableError, TidelogError, TimeoutError
from tidelog.protocol.messages import Request, Response


async def ask_broker(client: ClusterClient, broker_id: int, request: Request, deadline_ms: int) -> Response:
    """Return the broker's answer, whatever error codes it has; repeat requests that fail with a retriable error.

    Raises BrokerNotAvailableError if the broker is not in the cluster now, TimeoutError if no answer comes until the
    deadline, and NoBrokersError if no broker was ever reached.
    """
    await client.wait_for_metadata(deadline_ms)
    if broker_id not in client.view.brokers:
        await client.try_refresh(deadline_ms)
    attempt = 0
    last: TidelogError | None = None
    while True:
        if broker_id not in client.view.brokers:
            known = ", ".join(map(str, sorted(client.view.brokers))) or "none"
            raise BrokerNotAvailableError(f"broker {broker_id} is not in the cluster now (there are: {known})")
        left_ms = deadline_ms - client.clock.monotonic_ms()
        if left_ms <= 0:
            raise TimeoutError(f"broker {broker_id} did not answer in time (last: {last})") from last
        try:
            peer = await client.peer(broker_id, left_ms)
            left_ms = max(1, deadline_ms - client.clock.monotonic_ms())
            return await peer.send(request, timeout_ms=min(left_ms, client.settings.request_timeout_ms))
        except TidelogError as error:
            if not is_retriable(error):
                raise
            last = error
        await client.try_refresh(deadline_ms)
        await client.backoff(attempt, deadline_ms)
        attempt += 1
