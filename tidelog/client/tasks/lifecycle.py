"""Bind an asyncio client to one event loop, and free a client's resources if it is garbage-collected without `close`.

A client is garbage-collected after its last reference. Therefore objects that outlive the user's calls must not refer
to a client: its tasks, its I/O thread, and the handlers of exit and fork. These objects refer only to the client's
ClusterClient and its closers. A callback of a record without an outcome keeps alive a client that the
callback refers to.
"""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.client.cluster_client import ClusterClient

#: The tasks that free the resources of dropped clients, kept here because the loop holds only weak references.
_freeing: set[asyncio.Task[None]] = set()


class LoopBound:
    """The base of the asyncio clients. Each public method of a client calls `_enter_loop`.

    _loop      the loop of the first call; None before that call
    _is_owned  whether a synchronous client owns this one, and frees it
    """

    client: ClusterClient
    closed: bool
    _loop: asyncio.AbstractEventLoop | None = None
    _is_owned = False

    def _enter_loop(self) -> None:
        """Bind the client to the running loop. RuntimeError if an earlier call has bound the client to another one.

        Without a running loop the call does nothing.
        """
        loop = asyncio._get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif loop is not self._loop and loop is not None:  # a call that does not wait needs no running loop
            raise RuntimeError(
                f"{self!r} belongs to the event loop of its first call, "
                f"{'which is closed' if self._loop.is_closed() else 'and another one runs now'}: "
                "make and close a client within one asyncio.run"
            )

    def _leave_to_owner(self) -> None:
        """Note that a synchronous client owns this one and frees its resources."""
        self._is_owned = True

    def __del__(self) -> None:
        if self._loop is None or self._is_owned or self.closed:
            return
        free_dropped(self, partial(_shut_down_soon, self.client, self._loop))


def free_dropped(client: object, free: Callable[[], object]) -> None:
    """Call `free` to release the client's resources, and then issue a ResourceWarning, as Python does for files."""
    shown = repr(client)
    free()
    message = f"{shown} was dropped and not closed: close it, or use it in a `with` block"
    warnings.warn(message, ResourceWarning, stacklevel=3, source=client)


def _shut_down_soon(client: ClusterClient, loop: asyncio.AbstractEventLoop) -> None:
    """Start a task on the client's loop that shuts the client down; any thread may call this function.

    If the loop is closed, only close the connections.
    """

    def begin() -> None:
        task = loop.create_task(client.shut_down())
        _freeing.add(task)
        task.add_done_callback(_freeing.discard)

    if loop.is_closed():
        client.drop_connections()
    else:
        with contextlib.suppress(RuntimeError):  # another thread has just closed the loop
            loop.call_soon_threadsafe(begin)
