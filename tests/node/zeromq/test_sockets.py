"""Test sockets of a process without free descriptors, and of one that does not read before its peer dies."""

from __future__ import annotations

import subprocess
import sys

SENDS_A_LARGE_FRAME = """
import os, resource, zmq
from node.net.zeromq.sockets import be_ready_for_large_frames, open_socket, send_message

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


def test_prepared_process_sends_large_frames_without_a_file_descriptor() -> None:
    sent = run(ready=True)
    assert sent.stdout == f"{1 << 20}\n", sent.stderr


def test_unprepared_process_cannot_send_large_frames() -> None:
    assert "Too many open files" in run(ready=False).stderr


IS_FLOODED_BY_ONE_THAT_DIES = """
import time, zmq
from node.net.zeromq import sockets

INTERVAL_MS = 20
sockets.HEARTBEAT_INTERVAL_MS, sockets.HEARTBEAT_TIMEOUT_MS = INTERVAL_MS, 60_000
ours = sockets.open_socket(zmq.{kind})
with zmq.Context() as elsewhere, elsewhere.socket(zmq.DEALER) as theirs:
    theirs.connect("tcp://127.0.0.1:%d" % ours.bind_to_random_port("tcp://127.0.0.1"))
    for sent in range(20_000):
        if not theirs.poll({full_after_ms}, zmq.POLLOUT):
            break
        theirs.send(bytes(1000))
    theirs.close(linger=0)
time.sleep(20 * INTERVAL_MS / 1000)
read = 0
while ours.poll(200):
    sockets.receive_message(ours)
    read += 1
print(sent, read)
"""


def flooded(kind: str, full_after_ms: int) -> tuple[int, int]:
    """Return the sent and the read messages of a process that must survive.

    The peer stops sending when a message has waited for `full_after_ms`.
    """
    code = IS_FLOODED_BY_ONE_THAT_DIES.format(kind=kind, full_after_ms=full_after_ms)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    sent, read = map(int, done.stdout.split())
    return sent, read


def test_router_has_a_bounded_queue_and_survives_the_death_of_a_peer() -> None:
    sent, read = flooded("ROUTER", full_after_ms=200)
    assert 0 < read <= sent < 20_000 - 1


def test_dealer_accepts_every_answer_and_survives_the_death_of_a_peer() -> None:
    sent, read = flooded("DEALER", full_after_ms=30_000)
    assert sent == 20_000 - 1 and read > 0
