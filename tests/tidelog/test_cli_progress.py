from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios

import pytest

from tidelog.cli.progress import Progress


@pytest.mark.parametrize(("columns", "longest"), [(30, 29), (0, 200), (200, 199)])
def test_the_line_never_wraps(monkeypatch: pytest.MonkeyPatch, columns: int, longest: int) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with open(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with Progress("sent") as progress:
            progress.advance(1_000_000, 5_000_000)
        monkeypatch.undo()
        shown = os.read(ours, 1_000).decode().split("\r\x1b[K")
    os.close(ours)
    assert shown[0] == shown[-1] == ""
    assert shown[1].startswith("1,000,000 records sent, 5.0 M")
    assert len(shown[1]) <= longest
    assert shown[1].endswith("MB/s)") == (columns != 30)
