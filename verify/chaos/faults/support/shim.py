"""Brokers whose system calls fail, are slow or lie at a word: `shim.c`, compiled for the run and loaded before the
C library, with a page of orders for each broker.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tidelog.errors import LocalError
from tidelog.local.processes.process_placement import ZOOKEEPER
from verify.chaos.fault import Need, Place, UndoLog
from verify.chaos.faults.support.tools import run

#: The page's fields, eight bytes each, in the order of shim.c. First the orders, where 0 is none: `_us` and `_ns` are
#: micro- and nanoseconds, `tear_after` is the bytes that are still written, and one; negative: those that are not.
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
#: Then what was done; `torn_bytes` is what was still written, and one.
DONE = ("writes_failed", "syncs_failed", "writes_delayed", "syncs_delayed", "clocks_shifted", "torn_bytes", "holds")
_FIELDS = (*ORDERS, *DONE)
_SOURCE = Path(__file__).with_name("shim.c")
_COMPILERS = ("cc", "gcc", "clang")


class Page:
    """What one broker is told, and what it did. The file is the memory that its processes share with us."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def create(self) -> None:
        """Without orders."""
        self._path.write_bytes(bytes(4096))

    def order(self, **orders: int) -> None:
        """These, from now on; the others stay as they are."""
        with self._path.open("r+b", buffering=0) as page:
            for name, value in orders.items():
                page.seek(8 * ORDERS.index(name))
                page.write(value.to_bytes(8, "little", signed=True))

    def withdraw(self) -> None:
        """All orders."""
        self.order(**dict.fromkeys(ORDERS, 0))

    def read(self, name: str) -> int:
        """One field."""
        with self._path.open("rb", buffering=0) as page:
            page.seek(8 * _FIELDS.index(name))
            return int.from_bytes(page.read(8), "little", signed=True)


class Shim:
    """The furnishing for `Need.SHIM`."""

    need = Need.SHIM

    def __init__(self) -> None:
        self._directory = Path()

    def missing(self) -> str | None:
        """Why it cannot be had here; None: it can."""
        compiler = _compiler()
        if compiler is None:
            return f"needs a C compiler ({', '.join(_COMPILERS)})"
        return None

    async def set_up(self, undo: UndoLog, directory: Path, places: Mapping[str, Place]) -> Mapping[str, Place]:
        """Compiles it; each broker's place loads it. LocalError with the compiler's complaint."""
        self._directory = directory / "shim"
        library = await asyncio.to_thread(self._compile)
        changed = dict(places)
        for name, place in places.items():
            if name == ZOOKEEPER:
                continue
            self.page(name).create()
            preload = ":".join(filter(None, (str(library), place.environment.get("LD_PRELOAD"))))
            told = {"LD_PRELOAD": preload, "TIDELOG_SHIM_PAGE": str(self._page_path(name))}
            changed[name] = replace(place, environment={**place.environment, **told})
        return changed

    async def tear_down(self) -> None:
        """Removes what was compiled."""
        if self._directory.name:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    def page(self, broker: str) -> Page:
        """Of one broker ("1")."""
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
