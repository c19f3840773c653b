"""Change ZooKeeper's state for faults, through kazoo: expire sessions, remove and write znodes, and fill its log."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from tidelog.errors import LocalError

_EXPIRED_S, _ATTEMPT_S = 20.0, 3.0
_GONE_S = 1.0
_LOOK_EVERY_S = 0.01
_FILLER_BYTES, _MOST_BYTES = 100_000, 12 << 20
_LOGGER = logging.getLogger("verify.chaos.targets.sessions")
#: kazoo logs each lost connection, and here connections are lost on purpose.
_LOGGER.setLevel(logging.CRITICAL)


def expire(hosts: str, registration: str) -> int:
    """Expire the session that owns the ephemeral znode `registration`, and return the znode's czxid.

    A second client takes over the session by its id and password, and closes it. The owner may take its session back in
    between; the call tries again then. If the call loses its own connection, it connects again. Raise LocalError if
    there is no such znode, if the session still exists after 20 s, or if ZooKeeper does not answer for 20 s. The call
    blocks.
    """
    deadline = time.monotonic() + _EXPIRED_S
    retry = KazooRetry(max_tries=-1, max_delay=_GONE_S, deadline=_EXPIRED_S)
    try:
        with _connected(hosts, _EXPIRED_S) as client:
            stat = retry(client.exists, registration)
            if stat is None or not stat.ephemeralOwner:
                raise LocalError(f"{registration} is not registered in ZooKeeper")
            czxid, session = int(stat.czxid), int(stat.ephemeralOwner)

            def is_gone() -> bool:
                found = retry(client.exists, registration)
                return found is None or found.czxid != czxid

            while not is_gone():
                if time.monotonic() >= deadline:
                    raise LocalError(f"the session of {registration} did not end within {_EXPIRED_S:g} s")
                _close(hosts, session)
                until = time.monotonic() + _GONE_S
                while not is_gone() and time.monotonic() < until:
                    time.sleep(_LOOK_EVERY_S)
            return czxid
    except (KazooException, KazooTimeoutError) as error:
        raise LocalError(f"ZooKeeper does not answer: {type(error).__name__}") from None


def delete(hosts: str, path: str) -> None:
    """Remove a znode. Raise LocalError if the znode does not exist, has children, or ZooKeeper does not answer. The
    call blocks.
    """
    try:
        with _connected(hosts) as client:
            client.delete(path)
    except (KazooException, KazooTimeoutError) as error:
        raise LocalError(f"cannot remove the znode {path}: {type(error).__name__}") from None


def write(hosts: str, path: str, data: bytes) -> None:
    """Replace the data of an existing znode of any version. Raise LocalError if the znode does not exist or ZooKeeper
    does not answer. The call blocks.
    """
    try:
        with _connected(hosts) as client:
            client.set(path, data)
    except (KazooException, KazooTimeoutError) as error:
        raise LocalError(f"cannot write the znode {path}: {type(error).__name__}") from None


def write_until_refused(hosts: str) -> None:
    """Fill ZooKeeper's log with ephemeral znodes until 12.5 MB are written, or ZooKeeper refuses a write or does not
    answer for 1 s. Errors are ignored.

    The znodes are removed with the session at the end. The call blocks.
    """
    with suppress(KazooException, KazooTimeoutError), _connected(hosts) as client:
        for _ in range(_MOST_BYTES // _FILLER_BYTES):
            filler = client.create_async("/filler-", bytes(_FILLER_BYTES), ephemeral=True, sequence=True)
            filler.get(timeout=_GONE_S)


def session_password(session_id: int) -> bytes:
    """Return the password of a ZooKeeper session: the first 16 bytes of Java's Random, seeded from the session id."""
    mask = (1 << 48) - 1
    state = ((session_id ^ 0xB3415C00) ^ 0x5DEECE66D) & mask
    password = b""
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & mask
        password += ((state >> 16) & 0xFFFFFFFF).to_bytes(4, "little")
    return password


def _close(hosts: str, session: int) -> None:
    second_client = _client(hosts, (session, session_password(session)))
    # Both clients take the session from each other, so that this one may also lose it between two steps of its start.
    with suppress(KazooException, KazooTimeoutError):
        second_client.start(timeout=_ATTEMPT_S)
    second_client.stop()
    second_client.close()


@contextmanager
def _connected(hosts: str, timeout_s: float = _ATTEMPT_S) -> Iterator[KazooClient]:
    """Yield a connected client, and close its session at the end. Raise KazooTimeoutError if no server answers."""
    client = _client(hosts)
    try:
        client.start(timeout=timeout_s)
        yield client
    finally:
        client.stop()
        client.close()


def _client(hosts: str, client_id: tuple[int, bytes] | None = None) -> KazooClient:
    return KazooClient(hosts, timeout=5, client_id=client_id, logger=_LOGGER)
