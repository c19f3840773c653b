"""Host names to addresses, off the event loop and out of ZeroMQ's threads.

ZeroMQ would look a name up on the one thread that moves all of a process's messages, and a name server that is slow,
as those of container networks are just when a container has gone, would stop them all for its time-out.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from weakref import WeakKeyDictionary

#: How long a look-up may take where an earlier answer is known. After that the earlier one is good enough: whoever
#: connects is told who answers there.
PATIENCE_S = 0.1

#: The addresses of one host, the system's favourite first; OSError where it has none.
LookUp = Callable[[str], Awaitable[tuple[str, ...]]]


class Resolver:
    """The look-ups of one event loop: at most one under way for each host, and what the last one found."""

    def __init__(self, look_up: LookUp) -> None:
        self._look_up = look_up
        self._known: dict[str, tuple[str, ...]] = {}
        self._under_way: dict[str, asyncio.Task[tuple[str, ...]]] = {}

    async def resolve(self, host: str) -> tuple[str, ...]:
        """Never empty. OSError where the name is unknown, now and before."""
        task = self._under_way.get(host)
        if task is None or task.done():
            task = self._under_way[host] = asyncio.create_task(self._refresh(host), name=f"look-up of {host}")
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever asked may have gone
        known = self._known.get(host)
        if known is None:
            return await asyncio.shield(task)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asyncio.shield(task)
        except OSError:  # a time-out is one too
            return known

    async def _refresh(self, host: str) -> tuple[str, ...]:
        self._known[host] = found = await self._look_up(host)
        return found


_resolvers: WeakKeyDictionary[asyncio.AbstractEventLoop, Resolver] = WeakKeyDictionary()


async def resolve(host: str) -> tuple[str, ...]:
    """The addresses of a host, or the address itself where it is one already; OSError where there are none."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        loop = asyncio.get_running_loop()
        return await _resolvers.setdefault(loop, Resolver(_ask_the_system)).resolve(host)
    return (host,)


async def _ask_the_system(host: str) -> tuple[str, ...]:
    """On a thread that nobody waits for: a loop is not closed before its own threads are done, and a name server that
    has gone, as in a network of containers that is taken down, keeps them for half a minute."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[tuple[str, ...]] = loop.create_future()

    def tell(found: tuple[str, ...], error: OSError | None) -> None:
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
        with suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
            loop.call_soon_threadsafe(tell, tuple(dict.fromkeys(found)), failure)

    threading.Thread(target=ask, name=f"look-up of {host}", daemon=True).start()
    return await answer
