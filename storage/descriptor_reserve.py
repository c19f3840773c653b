"""File descriptors that are kept for files, so that a disk is not taken for failed when connections took all others."""

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
_TOLD_EVERY_MS = 10_000

_LOG = logging.getLogger(__name__)


class OutOfDescriptorsError(StorageError):
    """Nothing was tried, and the disk is as it was: what can wait is to be tried again."""


class DescriptorReserve:
    """`count` descriptors that are open on nothing. Where no other is left, one is given up for each that is needed.

    Who accepts connections may be faster and take that one too, so that the reserve should be larger than the queue of
    those that wait to be accepted. It fills again as descriptors come free.
    """

    def __init__(self, count: int, clock: Clock | None = None) -> None:
        self._count = count
        self._clock = clock or SystemClock()
        self._held: list[int] = []
        self._filling = threading.Lock()
        self._tell_from_ms = 0
        self._fill()

    def obtain(self, opening: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """What `opening` returns. It opens one descriptor at a time, and may be called again after it got none.

        OSError; EMFILE and ENFILE only where the reserve is used up. Any thread's.
        """
        if len(self._held) < self._count:
            self._fill()
        while True:
            try:
                return opening(*arguments, **options)
            except OSError as error:
                if error.errno not in NONE_LEFT:
                    raise
                self._tell(error)
                if not self._spend():
                    raise

    def close(self) -> None:
        """Gives all back, and keeps none from now on."""
        self._count = 0
        while self._spend():
            pass

    def _spend(self) -> bool:
        try:
            descriptor = self._held.pop()
        except IndexError:
            return False
        os.close(descriptor)
        return True

    def _fill(self) -> None:
        """As far as it goes."""
        if self._filling.acquire(blocking=False):
            try:
                while len(self._held) < self._count:
                    self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                pass
            finally:
                self._filling.release()

    def _tell(self, error: OSError) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._count and now_ms >= self._tell_from_ms:
            self._tell_from_ms = now_ms + _TOLD_EVERY_MS
            _LOG.warning(
                "no file descriptor is left (%s); of those kept for files %d are", error.strerror, len(self._held)
            )


NO_RESERVE = DescriptorReserve(0)
