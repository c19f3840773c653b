"""Resolve host names to addresses, outside the event loop and outside ZeroMQ's threads.

ZeroMQ would resolve a name on the one thread that moves all messages of a broker. A slow name server would stop all
messages until its timeout. The name servers of container networks are slow just when a container has disappeared.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from weakref import WeakKeyDictionary

#: How long a look-up may take if an earlier answer is known. After that the earlier answer is used, because the
#: handshake reports which broker answers at the address.
TIME_LIMIT_S = 0.1

#: Returns the addresses of one host, the system's preferred one first; OSError if there is none.
LookUp = Callable[[str], Awaitable[tuple[str, ...]]]


class Resolver:
    """The look-ups of one event loop: at most one in progress for each host, and the last success of each host."""

    def __init__(self, look_up: LookUp) -> None:
        self._look_up = look_up
        self._known: dict[str, tuple[str, ...]] = {}
        self._under_way: dict[str, asyncio.Task[tuple[str, ...]]] = {}

    async def resolve(self, host: str) -> tuple[str, ...]:
        """Look the host up again and return its addresses.

        If an earlier look-up succeeded and this one fails or takes longer than TIME_LIMIT_S, the earlier result is
        returned. Raises OSError if the look-up fails and none has succeeded before.
        """
        task = self._under_way.get(host)
        if task is None or task.done():
            task = self._under_way[host] = asyncio.create_task(self._refresh(host), name=f"look-up of {host}")
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # no caller may wait any more
        known = self._known.get(host)
        if known is None:
            return await asyncio.shield(task)
        try:
            async with asyncio.timeout(TIME_LIMIT_S):
                return await asyncio.shield(task)
        except OSError:  # a timeout is an OSError, too
            return known

    async def _refresh(self, host: str) -> tuple[str, ...]:
        self._known[host] = found = await self._look_up(host)
        return found


_resolvers: WeakKeyDictionary[asyncio.AbstractEventLoop, Resolver] = WeakKeyDictionary()


async def resolve(host: str) -> tuple[str, ...]:
    """Return the host's addresses, the system's preferred one first; an IP address is returned itself.

    A result of an earlier look-up on this event loop replaces a failed or slow one, as in `Resolver.resolve`. Raises
    OSError if no look-up of this host has succeeded on this event loop.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        loop = asyncio.get_running_loop()
        return await _resolvers.setdefault(loop, Resolver(_ask_the_system)).resolve(host)
    return (host,)


async def _ask_the_system(host: str) -> tuple[str, ...]:
    """Return the system's addresses of the host, looked up on a daemon thread of its own. Raises OSError.

    The thread is not one of the loop's own, because a loop waits for these when it closes. A name server that has
    disappeared, as in a container network that is shut down, would keep such threads for half a minute.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[tuple[str, ...]] = loop.create_future()

    def settle(found: tuple[str, ...], error: OSError | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(found)
        else:
            answer.set_exception(error)

    def ask() -> None:
        found: tuple[str, ...] = ()
        failure: OSError | None = None
        try:
            found = tuple(str(address[0]) for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
        except OSError as error:
            failure = error
        except UnicodeError:
            failure = socket.gaierror(socket.EAI_NONAME, f"{host!r} cannot be the name of a host")
        with suppress(RuntimeError):  # the loop is closed, so the answer is not needed
            loop.call_soon_threadsafe(settle, tuple(dict.fromkeys(found)), failure)

    threading.Thread(target=ask, name=f"look-up of {host}", daemon=True).start()
    return await answer
