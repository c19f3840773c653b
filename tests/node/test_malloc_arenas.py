"""Test that all threads of a broker allocate memory from one arena of glibc."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from node.process import main

#: The variables by which glibc gets a number of arenas.
OWN_SETTINGS = ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")

COUNTS_ARENAS = """
import ctypes, threading
from node.process.main import use_one_arena

if {calls}:
    use_one_arena()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes, libc.fclose.argtypes = [ctypes.c_int, ctypes.c_void_p], [ctypes.c_void_p]
thread = threading.Thread(target=libc.malloc, args=(10_000,))
thread.start()
thread.join()
file = libc.fopen(b"/dev/stdout", b"w")
libc.malloc_info(0, file)
libc.fclose(file)
"""


def arenas(calls: bool) -> int:
    """Return the number of arenas after a thread has allocated memory. `calls`: `use_one_arena` was called before."""
    code = COUNTS_ARENAS.format(calls=calls)
    environment = {name: value for name, value in os.environ.items() if name not in OWN_SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    return done.stdout.count("<heap nr=")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has no arenas")
def test_threads_allocate_from_one_arena() -> None:
    assert arenas(calls=True) == 1


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has no arenas")
def test_threads_have_arenas_of_their_own_by_default() -> None:
    assert arenas(calls=False) > 1


def test_broker_sets_the_number_of_arenas_at_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(main, "use_one_arena", lambda: called.append("arena"))
    monkeypatch.setattr(sys, "argv", ["node", "--config", str(tmp_path / "missing.toml")])
    assert main.main() == 1
    assert called == ["arena"]
