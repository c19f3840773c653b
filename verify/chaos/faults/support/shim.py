"""Make brokers' system calls fail, be slow or return a wrong time: `shim.c`, compiled for the run and preloaded.

Each broker has a page of orders, which is shared memory. Orders for writes and syncs affect only segments and their
indexes, and `tear_after` only segments.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tidelog.errors import LocalError
from tidelog.local.processes.process_placement import ZOOKEEPER
from verify.chaos.fault import Need, Placement, UndoLog
from verify.chaos.faults.support.tools import run

#: The page's fields, eight bytes each, in the order of shim.c. Orders come first, and 0 means none. `_us` and `_ns` are
#: micro- and nanoseconds. `tear_after` is one plus the bytes that are still written; a negative value is the number of
#: bytes that are omitted.
ORDERS = (
    "write_errno",
    "sync_errno",
    "write_delay_us",
    "sync_delay_us",
    "clock_offset_ns",
    "clock_swing_ns",
    "clock_period_ns",
    "tear_after",
    "hold_ms",
)
#: The counters follow. `torn_bytes` is one plus the bytes that were still written.
DONE = ("writes_failed", "syncs_failed", "writes_delayed", "syncs_delayed", "clocks_shifted", "torn_bytes", "holds")
_FIELDS = (*ORDERS, *DONE)
_SOURCE = Path(__file__).with_name("shim.c")
_COMPILERS = ("cc", "gcc", "clang")


class Page:
    """The orders to one broker, and the counters of executed orders. The broker's processes map the file as shared
    memory, so that a change has effect at once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self) -> None:
        """Create the page without orders and with all counters 0. An existing page is replaced."""
        self._path.write_bytes(bytes(4096))

    def order(self, **orders: int) -> None:
        """Set these orders, by their names in `ORDERS`. Other orders stay unchanged. 0 withdraws an order."""
        with self._path.open("r+b", buffering=0) as page:
            for name, value in orders.items():
                page.seek(8 * ORDERS.index(name))
                page.write(value.to_bytes(8, "little", signed=True))

    def withdraw(self) -> None:
        """Remove all orders."""
        self.order(**dict.fromkeys(ORDERS, 0))

    def read(self, name: str) -> int:
        """Return the value of one order or counter."""
        with self._path.open("rb", buffering=0) as page:
            page.seek(8 * _FIELDS.index(name))
            return int.from_bytes(page.read(8), "little", signed=True)


class Shim:
    """The prerequisite for `Need.SHIM`: a library of failing system calls in each broker, and a page of orders for
    each.
    """

    need = Need.SHIM

    def __init__(self) -> None:
        self._directory = Path()

    def missing(self) -> str | None:
        """Return None if a C compiler is installed, otherwise a text that names the compilers."""
        compiler = _compiler()
        if compiler is None:
            return f"needs a C compiler ({', '.join(_COMPILERS)})"
        return None

    async def set_up(self, undo: UndoLog, directory: Path, places: Mapping[str, Placement]) -> Mapping[str, Placement]:
        """Compile the shim, create the pages, and return the placements, each broker's with the library to preload.

        Raise LocalError with the compiler's output.
        """
        self._directory = directory / "shim"
        library = await asyncio.to_thread(self._compile)
        changed = dict(places)
        for name, place in places.items():
            if name == ZOOKEEPER:
                continue
            self.page(name).create()
            preload = ":".join(filter(None, (str(library), place.environment.get("LD_PRELOAD"))))
            variables = {"LD_PRELOAD": preload, "TIDELOG_SHIM_PAGE": str(self._page_path(name))}
            changed[name] = replace(place, environment={**place.environment, **variables})
        return changed

    async def tear_down(self) -> None:
        """Remove the compiled library and the pages."""
        if self._directory.name:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    def page(self, broker: str) -> Page:
        """Return the page of one broker such as "1"."""
        return Page(self._page_path(broker))

    def _page_path(self, broker: str) -> Path:
        return self._directory / f"{broker}.orders"

    def _compile(self) -> Path:
        self._directory.mkdir(parents=True, exist_ok=True)
        library, compiler = self._directory / "shim.so", _compiler()
        if compiler is None:
            raise LocalError(self.missing() or "")
        run(compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE), "-ldl")
        return library


def _compiler() -> str | None:
    return next((found for name in _COMPILERS if (found := shutil.which(name))), None)
