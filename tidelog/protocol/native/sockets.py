"""What the ZeroMQ sockets of both ends have in common.

They are read through their file descriptor, which is edge-triggered: it announces only changes, and a send or a
receive may swallow one. So whether there is `has_input` is asked after each, else a message could lie there unseen.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import cast

import zmq

from tidelog.model import Buffer
from tidelog.protocol.codec import MAX_FRAME_BYTES

#: A peer that answers no ZMTP ping for this long, or sends none, is taken for gone.
HEARTBEAT_INTERVAL_MS = 1000
HEARTBEAT_TIMEOUT_MS = 4000
#: TCP's own, of a connection that is silent.
_PROBED_AFTER_S, _PROBED_EACH_S, _PROBES = 4, 1, 4
#: Messages that wait in a socket's queues.
MAX_QUEUED = 1000
#: Messages read in one turn of the loop, so that one busy peer does not starve the others.
READ_BATCH = 64

# Flags as bare numbers: the arithmetic of enumerations costs more than the calls that they are for.
_EVENTS, _INPUT = int(zmq.EVENTS), int(zmq.POLLIN)
_AT_ONCE, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_COPIED_BELOW_BYTES = 1 << 19
_IPV4_AS_IPV6 = "::ffff:"


def open_socket(kind: int) -> zmq.Socket[bytes]:
    """A socket with bounds that does not linger after close; one that asks has heartbeats.

    libzmq (4.3.5, its issue 4364) ends the process where a heartbeat is due on a connection that has ended, and of
    which no more was read since its queue was full. So no socket has both. Who asks sends the pings, and takes every
    answer: there are no more than it asked for. Who answers bounds what waits; it gives up whose pings stop, and by
    TCP's own probes who never sent one.
    """
    socket = _context(os.getpid()).socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, MAX_QUEUED)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    socket.setsockopt(zmq.IPV6, 1)
    if kind == zmq.DEALER:
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_INTERVAL_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TTL, HEARTBEAT_TIMEOUT_MS)
    else:
        socket.setsockopt(zmq.RCVHWM, MAX_QUEUED)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, _PROBED_AFTER_S)
        socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, _PROBED_EACH_S)
        socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, _PROBES)
    return socket


@cache
def _context(process: int) -> zmq.Context[zmq.Socket[bytes]]:
    """Of each process one, as its threads do not survive a fork."""
    context = zmq.Context()
    if hasattr(os, "SCHED_BATCH"):
        # A thread of ZeroMQ that wakes waits for the one that woke it to finish, instead of taking its processor in
        # the middle of what it does: with fewer processors than threads that is a tenth of a produce.
        context.set(zmq.THREAD_SCHED_POLICY, os.SCHED_BATCH)
    return context


def be_ready_for_large_frames() -> None:
    """From now on no file descriptor is needed to send one uncopied.

    pyzmq has a thread for what ZeroMQ gives back, and opens its sockets when the first such frame is sent. Whoever has
    none left then neither sends it nor hears the rest of what waits.
    """
    zmq.Frame(b" ", copy=False, copy_threshold=0)


def descriptor_of(socket: zmq.Socket[bytes]) -> int:
    """The file descriptor that the loop watches."""
    return cast(int, socket.getsockopt(zmq.FD))


def has_input(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message waits; asking also re-arms the descriptor."""
    return bool(cast(int, socket.getsockopt(_EVENTS)) & _INPUT)


def send_message(socket: zmq.Socket[bytes], frames: Sequence[Buffer]) -> None:
    """One message, without waiting: zmq.Again where the queue is full, and nothing of it was sent then."""
    send = socket.send
    last = len(frames) - 1
    for index, frame in enumerate(frames):
        # Below that size a copy is cheaper than what ZeroMQ must do to give a frame back.
        send(frame, _MORE if index < last else _AT_ONCE, copy=len(frame) < _COPIED_BELOW_BYTES)


def send_tracked_message(socket: zmq.Socket[bytes], frames: Sequence[Buffer]) -> zmq.MessageTracker:
    """As `send_message`; `done` of what it returns says when all of it has left the queue."""
    *before, last = frames
    for frame in before:
        socket.send(frame, _MORE, copy=len(frame) < _COPIED_BELOW_BYTES)
    # ZeroMQ gives back only what is uncopied, however small it is, and frames in their order.
    return socket.send(zmq.Frame(last, copy=False, track=True, copy_threshold=0), _AT_ONCE, copy=False, track=True)


def receive_message(socket: zmq.Socket[bytes]) -> list[memoryview] | None:
    """The next message, uncopied. None where none waits, and then the descriptor will announce the next."""
    try:
        frame = socket.recv(_AT_ONCE, copy=False)
    except zmq.Again:
        return None
    frames = [frame.buffer]
    while frame.more:
        frame = socket.recv(_AT_ONCE, copy=False)
        frames.append(frame.buffer)
    return frames


def host_of_sender(frame: memoryview) -> str:
    """The address that a received frame came from; empty where it was never on a network."""
    sent = frame.obj
    if not isinstance(sent, zmq.Frame):
        return ""
    try:
        address = str(sent.get("Peer-Address"))
    except zmq.ZMQError:
        return ""
    return address.removeprefix(_IPV4_AS_IPV6)
