"""File descriptors reserved for files, so that a lack caused by connections is not taken for a disk failure."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tidelog.clock import Clock, SystemClock
from tidelog.errors import StorageError

T = TypeVar("T")
P = ParamSpec("P")

NONE_LEFT = (errno.EMFILE, errno.ENFILE)
_WARN_EVERY_MS = 10_000

_LOG = logging.getLogger(__name__)


class OutOfDescriptorsError(StorageError):
    """No file descriptor was free.

    The disk has not failed, and the call may be repeated later. A call of several steps may have done the first ones.
    """


class DescriptorReserve:
    """Keeps `count` descriptors open on /dev/null.

    If no descriptor is free, one of them is closed for each that is needed.

    A thread that accepts connections may take the closed descriptor first. The reserve should therefore be larger than
    the queue of connections to be accepted. Later calls of `obtain` refill the reserve if descriptors are free.
    """

    def __init__(self, count: int, clock: Clock | None = None) -> None:
        self._count = count
        self._clock = clock or SystemClock()
        self._held: list[int] = []
        self._filling = threading.Lock()
        self._next_warning_ms = 0
        self._fill()

    def obtain(self, opening: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Return the result of `opening`; if no descriptor is free, close a reserved one and call `opening` again.

        `opening` opens one descriptor at a time and may be repeated after it got none. Its OSErrors are raised, EMFILE
        and ENFILE only if the reserve is used up. Any thread may call this.
        """
        if len(self._held) < self._count:
            self._fill()
        while True:
            try:
                return opening(*arguments, **options)
            except OSError as error:
                if error.errno not in NONE_LEFT:
                    raise
                self._warn(error)
                if not self._release_one():
                    raise

    def close(self) -> None:
        """Close all reserved descriptors and keep none from now on."""
        self._count = 0
        while self._release_one():
            pass

    def _release_one(self) -> bool:
        try:
            descriptor = self._held.pop()
        except IndexError:
            return False
        os.close(descriptor)
        return True

    def _fill(self) -> None:
        """Refill the reserve as far as descriptors are free."""
        if self._filling.acquire(blocking=False):
            try:
                while len(self._held) < self._count:
                    self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                pass
            finally:
                self._filling.release()

    def _warn(self, error: OSError) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._count and now_ms >= self._next_warning_ms:
            self._next_warning_ms = now_ms + _WARN_EVERY_MS
            _LOG.warning("no file descriptor is left (%s); %d of the reserve remain", error.strerror, len(self._held))


NO_RESERVE = DescriptorReserve(0)
