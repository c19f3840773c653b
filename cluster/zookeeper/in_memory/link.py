"""The network between a machine and ZooKeeper, and one connection over it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random
from typing import Any, Protocol

from cluster.zookeeper.in_memory.network_conditions import NetworkConditions, delay_s
from cluster.zookeeper.in_memory.server import Member
from cluster.zookeeper.in_memory.sessions import Sessions
from cluster.zookeeper.in_memory.stream import Home, Stream
from cluster.zookeeper.store import NodeChanged, Set, StoreEvent

#: A client pings after so much of its session's time, and gives a connection up after so much silence, as kazoo does.
_PING_SHARE = 1 / 3
_SILENCE_SHARE = 2 / 3

#: What a server does about a request; it calls the second argument once, with what is to be answered.
Work = Callable[["Link", Callable[[Any], None]], None]


class User(Protocol):
    """A client, as its connection and its network see it."""

    session_timeout_ms: int
    home: Home

    def deliver(self, event: StoreEvent) -> None: ...

    def lose(self, link: Link) -> None:
        """That connection is gone."""

    def reach(self) -> None:
        """There may be a way again."""

    def vanish(self) -> None:
        """Its process is gone."""


@dataclass(slots=True)
class Health:
    """Of the servers: whether they run, and whether they do anything."""

    up: bool = True
    awake: bool = True


class Way:
    """Between one machine and ZooKeeper. It outlives the clients that use it; what is commanded holds for all of them.

    weather    may be replaced at any time
    on_write   told of each write to a node that is about to leave a client here
    """

    def __init__(self, weather: NetworkConditions, dice: Random, sessions: Sessions, servers: Health) -> None:
        self.weather = weather
        self.dice = dice
        self.sessions = sessions
        self.links: dict[Link, None] = {}
        self.on_write: Callable[[Set], object] = lambda write: None
        self._servers = servers
        self._users: dict[User, None] = {}
        self._refused = False
        self._requests_pass = self._answers_pass = True

    # --- by command ------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """Every connection breaks, and both ends notice. What is under way is lost; the clients connect again."""
        for link in list(self.links):
            link.break_down()

    def refuse(self) -> None:
        """Every connection breaks, and none comes about until `heal`."""
        self._refused = True
        self.drop()

    def cut(self, *, requests: bool = True, answers: bool = True) -> None:
        """Nothing passes (in that direction), and nobody is told. What is under way arrives after `heal`, if the
        connection is still there then; a request, also if its client has given it up meanwhile.
        """
        self._requests_pass &= not requests
        self._answers_pass &= not answers
        self.changed()

    def heal(self) -> None:
        """Ends `refuse` and `cut`."""
        self._refused = False
        self._requests_pass = self._answers_pass = True
        self.changed()

    def vanish(self) -> None:
        """The processes of the machine are killed: no client of theirs notices anything any more."""
        for user in list(self._users):
            user.vanish()

    # --- for the ensemble and its clients --------------------------------------------------------------------

    @property
    def open(self) -> bool:
        """Whether a connection can come about."""
        passes = self._requests_pass and self._answers_pass
        return passes and not self._refused and self._servers.up and self._servers.awake

    def changed(self) -> None:
        """Something of what decides what passes."""
        if not self._servers.up:
            self.drop()
        requests_pass = self._requests_pass and self._servers.awake
        for link in list(self.links):
            link.passes(requests=requests_pass, answers=self._answers_pass)
        if self.open:
            for user in list(self._users):
                user.reach()

    def enter(self, user: User) -> None:
        self._users[user] = None

    def leave(self, user: User) -> None:
        self._users.pop(user, None)


class Link:
    """One connection of one client to one server. Requests are served in their order, one at a time."""

    def __init__(self, way: Way, member: Member, user: User) -> None:
        self.member = member
        self.session_id = 0
        self._way = way
        self._user: User | None = user
        self._timeout_s = user.session_timeout_ms / 1000
        self._here, self._there = user.home, way.sessions.home
        self._up, self._down = Stream(self._there), Stream(self._here)
        self._work: deque[tuple[Work, Callable[[Any], None]]] = deque()
        self._serving = False
        self._asked_s = -inf
        self._hung_up = self._closed = False
        self._silence: asyncio.TimerHandle | None = None
        way.links[self] = None

    # --- the client's end ------------------------------------------------------------------------------------

    def ask(self, work: Work, answered: Callable[[Any], None]) -> None:
        """Has the server do it; `answered` is called with what it answers, unless the connection ends before."""
        weather, dice = self._way.weather, self._way.dice
        wait_s = delay_s(dice, weather.request_ms)
        if weather.breaks and dice.random() < weather.breaks:
            if dice.random() < 0.5:
                self._up.send(wait_s, partial(self._take, work, _unheard))
            self._up.send(wait_s, self.break_down)
        else:
            self._up.send(wait_s, partial(self._take, work, answered))

    def give_up(self) -> None:
        """The client wants nothing of this connection any more. What it has sent arrives, if it can."""
        self._hush()
        self._down.close()
        user, self._user = self._user, None
        if self._hung_up:
            self.end()
        else:
            self._up.send(0, self.end)
        if user is not None:
            user.lose(self)

    # --- the network -----------------------------------------------------------------------------------------

    def break_down(self) -> None:
        """Both ends notice."""
        user = self._user
        self.end()
        if user is not None:
            user.lose(self)

    def passes(self, *, requests: bool, answers: bool) -> None:
        """What passes from now on, and since when nothing does: the last ping may have been some time ago."""
        for stream, free in ((self._up, requests), (self._down, answers)):
            if free:
                stream.release()
            else:
                stream.hold()
        if requests and answers:
            self._hush()
        elif self._silence is None and self._user is not None:
            self._silence = self._here().call_at(self._last_heard_s() + self._timeout_s * _SILENCE_SHARE, self.give_up)
        if not requests:
            self._way.sessions.silent(self.session_id, self._last_heard_s())
        elif self._user is not None:
            self._way.sessions.heard(self.session_id)

    def _last_heard_s(self) -> float:
        """A ping, if no request came after it."""
        pinged_s = self._here().time() - self._way.dice.uniform(0, self._timeout_s * _PING_SHARE)
        return max(pinged_s, self._asked_s)

    def _hush(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    # --- the server's end ------------------------------------------------------------------------------------

    def tell(self, path: str) -> None:
        """A watch has fired."""
        wait_s = delay_s(self._way.dice, self._way.weather.watch_ms)
        self._down.send(wait_s, partial(self._deliver, NodeChanged(path)))

    def end(self) -> None:
        """The server is done with this connection, and knows its client no longer. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._hush()
        self._up.close()
        self._down.close()
        self._user = None
        self._work.clear()
        self.member.forget(self)
        self._way.links.pop(self, None)
        self._way.sessions.silent(self.session_id, self._there().time())

    def hang_up(self) -> None:
        """The server ends it; the client notices once it has got what was sent before."""
        self.session_id = 0
        self._hung_up = True
        self._up.close()
        self._work.clear()
        self.member.forget(self)
        self._down.send(0, self.break_down)

    def _take(self, work: Work, answered: Callable[[Any], None]) -> None:
        self._asked_s = self._there().time()
        self._work.append((work, answered))
        self._serve()

    def _serve(self) -> None:
        while self._work and not self._serving:
            work, answered = self._work.popleft()
            self._serving = True
            work(self, partial(self._answer, answered))

    def _answer(self, answered: Callable[[Any], None], outcome: Any) -> None:
        self._serving = False
        self._down.send(delay_s(self._way.dice, self._way.weather.answer_ms), partial(answered, outcome))
        if self._work:
            self._there().call_soon(self._serve)

    def _deliver(self, event: StoreEvent) -> None:
        if self._user is not None:
            self._user.deliver(event)


def _unheard(outcome: Any) -> None:
    """The answer that the connection does not survive."""
