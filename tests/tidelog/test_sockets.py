"""Sockets of a process that may open no more files."""

from __future__ import annotations

import subprocess
import sys

SENDS_A_LARGE_FRAME = """
import os, resource, zmq
from tidelog.sockets import be_ready_for_large_frames, open_socket, send_message

ours, theirs = open_socket(zmq.PAIR), open_socket(zmq.PAIR)
ours.bind("inproc://large")
theirs.connect("inproc://large")
if {ready}:
    be_ready_for_large_frames()
lowest_free = os.open(os.devnull, os.O_RDONLY)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + 1, lowest_free + 1))
send_message(ours, [bytes(1 << 20)])
print(len(theirs.recv()))
os._exit(0)
"""


def run(ready: bool) -> subprocess.CompletedProcess[str]:
    code = SENDS_A_LARGE_FRAME.format(ready=ready)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def test_who_was_ready_sends_large_frames_without_a_file_descriptor() -> None:
    sent = run(ready=True)
    assert sent.stdout == f"{1 << 20}\n", sent.stderr


def test_who_was_not_ready_cannot() -> None:
    assert "Too many open files" in run(ready=False).stderr
