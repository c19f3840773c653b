"""Asks local brokers over HTTP whether they are ready."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException

from tidelog.local.processes.process import Condition
from tidelog.local.state import BrokerState

_ANSWER_S = 2.0
_MOST_BYTES = 1000


def why_not_ready(broker: BrokerState) -> str | None:
    """Ask the broker's /readyz, and return in one line why it is not ready; None if it is ready, or has no HTTP port.

    A suspended broker is not asked. A broker that does not answer within two seconds is not ready.
    """
    if broker.condition is Condition.SUSPENDED:
        return f"suspended by a signal (state T): kill -CONT {broker.pid} resumes it"
    if not broker.http_port:
        return None
    connection = HTTPConnection(broker.host, broker.http_port, timeout=_ANSWER_S)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        text = " ".join(answer.read(_MOST_BYTES).decode(errors="replace").split())
        return None if answer.status == 200 else text or f"status {answer.status}"
    except (OSError, HTTPException) as error:
        return f"{broker.http_address} does not answer: {str(error) or type(error).__name__}"
    finally:
        connection.close()


def reasons(brokers: Iterable[BrokerState]) -> dict[int, str]:
    """Ask all running brokers at once; return why each is not ready, by broker id, without those that are ready."""
    asked = [broker for broker in brokers if broker.running]
    if not asked:
        return {}
    with ThreadPoolExecutor(min(16, len(asked))) as pool:
        answers = zip(asked, pool.map(why_not_ready, asked), strict=True)
        return {broker.broker_id: reason for broker, reason in answers if reason is not None}
