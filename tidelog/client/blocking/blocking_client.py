"""Provide the base of the synchronous clients: an asyncio client, and the thread on which it runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from tidelog import arguments
from tidelog.client.blocking.io_thread import IoThread
from tidelog.client.cluster_client import ClusterClient
from tidelog.client.tasks.lifecycle import free_dropped

T = TypeVar("T")


class Core(Protocol):
    """The asyncio client behind a synchronous one."""

    @property
    def closed(self) -> bool: ...
    @property
    def client(self) -> ClusterClient: ...
    async def close(self) -> None: ...
    def _leave_to_owner(self) -> None: ...


C = TypeVar("C", bound=Core)


class BlockingClient(Generic[C]):
    """Runs each call of the core on the I/O thread and waits for it.

    A call without a timeout has `default_timeout_ms`.
    """

    def __init__(self, core: C, thread_name: str, default_timeout_ms: int) -> None:
        self._core = core
        core._leave_to_owner()
        self._default_timeout_ms = default_timeout_ms
        self._io = IoThread(thread_name)

    def close(self) -> None:
        """Close the core, and end the I/O thread, so that calls in progress raise ClosedError. Idempotent."""
        self._close(self._core.close(), 0)

    def _close(self, closing: Coroutine[Any, Any, None], timeout_ms: int) -> None:
        if self._core.closed or self._io.stopped:
            closing.close()
            return
        try:
            self._io.run(closing, timeout_ms / 1000)
        finally:
            if not self._io.is_current:  # a callback on the I/O thread: `run` has refused the call
                self._io.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        io: IoThread | None = getattr(self, "_io", None)
        if io is not None and not io.stopped:
            free_dropped(self, partial(io.abandon, self._core.client.shut_down))

    def _wait(
        self,
        coroutine: Coroutine[Any, Any, T],
        timeout_ms: int | None = None,
        on_lost: Callable[[T], object] = lambda result: None,
    ) -> T:
        """Return the result of a call that ends by itself after `timeout_ms` (None: the default timeout).

        A wrong `timeout_ms` raises TypeError or ValueError, and the call does not begin. See `IoThread.run`.
        """
        time_limit_ms = self._default_timeout_ms
        try:
            if timeout_ms is not None:
                time_limit_ms = arguments.timeout_ms("timeout_ms", timeout_ms)
        except (TypeError, ValueError):
            coroutine.close()
            raise
        return self._io.run(coroutine, time_limit_ms / 1000, on_lost)

    def _now(self, function: Callable[[], T]) -> T:
        """Run a function that does not wait on the core's loop, and return its result, within the default timeout."""

        async def call() -> T:
            return function()

        return self._wait(call())
