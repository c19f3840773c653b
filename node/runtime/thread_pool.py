"""Make pools of threads whose threads the system can tell apart."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import get_native_id

#: Linux keeps so many characters.
_LONGEST_NAME = 15


def thread_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """Return a pool of at most `threads` threads, which have `name` in the lists of `top -H` and `ps -T` too.

    A pool starts a thread when it has work and no idle thread, and keeps its threads. Therefore the threads of a broker
    grow for a while. The names show that no pool exceeds its size, and that no other threads were added.
    """
    return ThreadPoolExecutor(threads, thread_name_prefix=name, initializer=_name_thread, initargs=(name,))


def _name_thread(name: str) -> None:
    with suppress(OSError):  # no /proc, or no free descriptor: the thread works without a name
        Path(f"/proc/self/task/{get_native_id()}/comm").write_text(name[:_LONGEST_NAME], encoding="ascii")
