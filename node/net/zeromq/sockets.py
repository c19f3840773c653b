"""Configure and use the ZeroMQ sockets of both ends.

The event loop watches a socket's file descriptor, which is edge-triggered: it signals only changes, and a send or a
receive may consume the signal. Therefore `has_input` must be checked after each operation, because a message could
otherwise stay unread.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import cast

import zmq

from tidelog.model import Buffer
from tidelog.protocol.codec import MAX_FRAME_BYTES

#: A peer that answers no ZMTP ping for this long, or sends none, counts as disconnected.
HEARTBEAT_INTERVAL_MS = 1000
HEARTBEAT_TIMEOUT_MS = 4000
#: TCP keepalive: when an idle connection is probed, how often, and how many probes may fail.
_PROBED_AFTER_S, _PROBED_EACH_S, _PROBES = 4, 1, 4
#: Maximum number of messages in each of a socket's queues.
MAX_QUEUED = 1000
#: Messages read in one turn of the loop, so that one busy peer does not starve the others.
READ_BATCH = 64

# Flags as plain integers, because arithmetic with enumerations costs more than the calls that use them.
_EVENTS, _INPUT = int(zmq.EVENTS), int(zmq.POLLIN)
_AT_ONCE, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_COPIED_BELOW_BYTES = 1 << 19
_IPV4_AS_IPV6 = "::ffff:"


def open_socket(kind: int) -> zmq.Socket[bytes]:
    """Return a new ZeroMQ socket of this kind (zmq.DEALER or zmq.ROUTER), which discards unsent messages on close.

    The queue for sending is bounded, and larger frames than MAX_FRAME_BYTES end the connection.

    libzmq (4.3.5, its issue 4364) aborts the process if a heartbeat is due on a connection that has ended and that was
    no longer read because its queue was full. Therefore no socket has both. A DEALER sends heartbeats and has no limit
    for received messages, which are at most the answers to its requests. A ROUTER limits its queue, and drops peers
    whose heartbeats stop, and by TCP keepalive peers that never sent one.
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
    """Return the ZeroMQ context of the process with this id.

    A forked process needs a context of its own, because threads do not survive a fork.
    """
    context = zmq.Context()
    if hasattr(os, "SCHED_BATCH"):
        # With this policy a ZeroMQ thread that wakes up does not preempt the thread that woke it. With fewer processors
        # than threads, preemption would cost a tenth of a produce request's time.
        context.set(zmq.THREAD_SCHED_POLICY, os.SCHED_BATCH)
    return context


def be_ready_for_large_frames() -> None:
    """Let pyzmq open its internal sockets now, so that sending an uncopied frame later needs no file descriptor.

    pyzmq has a thread that receives released frames, and opens its sockets when the first such frame is sent. A process
    without free descriptors at that time could neither send the frame nor receive further releases.
    """
    zmq.Frame(b" ", copy=False, copy_threshold=0)


def descriptor_of(socket: zmq.Socket[bytes]) -> int:
    """Return the file descriptor that becomes readable when the socket may have input; it signals only changes."""
    return cast(int, socket.getsockopt(zmq.FD))


def has_input(socket: zmq.Socket[bytes]) -> bool:
    """Return whether a message waits to be received; if not, the descriptor signals the next one."""
    return bool(cast(int, socket.getsockopt(_EVENTS)) & _INPUT)


def send_message(socket: zmq.Socket[bytes], frames: Sequence[Buffer]) -> None:
    """Queue one message of at least one frame, without waiting; zmq.Again, with nothing sent, if the queue is full.

    Frames of 512 KiB and more are not copied, so that they must not change until ZeroMQ has sent them.
    """
    send = socket.send
    last = len(frames) - 1
    for index, frame in enumerate(frames):
        # Below that size a copy is cheaper than ZeroMQ's work to release an uncopied frame.
        send(frame, _MORE if index < last else _AT_ONCE, copy=len(frame) < _COPIED_BELOW_BYTES)


def send_tracked_message(socket: zmq.Socket[bytes], frames: Sequence[Buffer]) -> zmq.MessageTracker:
    """Queue one message like `send_message`, but never copy the last frame.

    The returned tracker's `done` becomes true when the whole message has left the queue.
    """
    *before, last = frames
    for frame in before:
        socket.send(frame, _MORE, copy=len(frame) < _COPIED_BELOW_BYTES)
    # ZeroMQ reports the release of uncopied frames only, whatever their size, and releases frames in order.
    return socket.send(zmq.Frame(last, copy=False, track=True, copy_threshold=0), _AT_ONCE, copy=False, track=True)


def receive_message(socket: zmq.Socket[bytes]) -> list[memoryview] | None:
    """Return the frames of the next message uncopied; None if no message waits. The call does not wait.

    After None, the descriptor signals the next message.
    """
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
    """Return the IP address of the peer that sent a received frame; "" if it is unknown, as in a simulated network."""
    sent = frame.obj
    if not isinstance(sent, zmq.Frame):
        return ""
    try:
        address = str(sent.get("Peer-Address"))
    except zmq.ZMQError:
        return ""
    return address.removeprefix(_IPV4_AS_IPV6)
