from __future__ import annotations

import contextlib
import fcntl
import pty
import struct
import sys
import termios

import pytest

from tidelog.cli.terminal.progress import Progress


def read_to_the_end(terminal: int) -> str:
    """Whatever was written to the other side, which has been closed: it may come in pieces."""
    shown = b""
    with open(terminal, "rb", buffering=0) as side, contextlib.suppress(OSError):  # Linux ends it with EIO
        while piece := side.read(1_000):
            shown += piece
    return shown.decode()


@pytest.mark.parametrize(("columns", "longest"), [(30, 29), (0, 200), (200, 199)])
def test_the_line_never_wraps(monkeypatch: pytest.MonkeyPatch, columns: int, longest: int) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with open(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with Progress("sent") as progress:
            progress.advance(1_000_000, 5_000_000)
        monkeypatch.undo()
    shown = read_to_the_end(ours).split("\r\x1b[K")
    assert shown[0] == shown[-1] == ""
    assert shown[1].startswith("1,000,000 records sent, 4.77 ")
    assert len(shown[1]) <= longest
    assert shown[1].endswith("iB/s)") == (columns != 30)
