"""Apply iptables rules in the namespaces of a run. Each rule has a unique comment by which its packets are counted."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from verify.chaos.fault import UndoLog
from verify.chaos.faults.support.namespaces import CLIENTS, Namespaces
from verify.chaos.faults.support.tools import quietly, run_aside

DROP = ("DROP",)
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Rule:
    """One iptables rule in the namespace of one member. `match` has its conditions, and `target` is its target with
    options.
    """

    member: str
    chain: str
    match: tuple[str, ...] = ()
    target: tuple[str, ...] = DROP
    table: str = "filter"


def one_way(source: str, destination: str, *match: str, target: tuple[str, ...] = DROP) -> Callable[[Namespaces], Rule]:
    """Return a factory of the rule for packets from one member to another, by default to drop them.

    The rule is installed at the receiver, or at the sender if clients receive. `match` adds conditions.
    """

    def rule(network: Namespaces) -> Rule:
        if destination == CLIENTS:
            return Rule(source, "OUTPUT", ("-d", network.address(destination), *match), target)
        return Rule(destination, "INPUT", ("-s", network.address(source), *match), target)

    return rule


class Installed:
    """A rule that is active from `install` to `remove`, and can be installed again."""

    def __init__(self, network: Namespaces, rule: Rule) -> None:
        self._network = network
        self._comment = f"tidelog-{next(_numbers)}"
        self._chain = rule.chain
        self._iptables = ("iptables", "-w", "5", "-t", rule.table)
        self._inside = network.inside(rule.member)
        self._spec = (rule.chain, *rule.match, "-m", "comment", "--comment", self._comment, "-j", *rule.target)
        self._removed: Callable[[], None] = lambda: None
        self._installed = False
        self._earlier = 0
        #: The number of packets that the rule has matched in all its active times, as of the last `count`.
        self.packets = 0

    async def install(self, undo: UndoLog) -> None:
        command = (*self._inside, *self._iptables, "-D", *self._spec)
        self._removed = undo.to_run(*quietly(*command))
        await run_aside(*self._inside, *self._iptables, "-I", *self._spec)
        self._earlier = self.packets
        self._installed = True

    async def count(self) -> int:
        """Count the packets that the rule has matched in all its active times, and return the number."""
        if self._installed:
            listed = await run_aside(*self._inside, *self._iptables, "-nvxL", self._chain)
            lines = (line.split() for line in listed.splitlines() if f"/* {self._comment} */" in line)
            self.packets = next((self._earlier + int(fields[0]) for fields in lines), self.packets)
        return self.packets

    async def remove(self) -> None:
        """Count once more and remove the rule. A rule that is not active is removed too, if it exists."""
        if self._installed:
            await self.count()
            self._installed = False  # set before the await, so that it holds if this task is cancelled
            await run_aside(*self._inside, *self._iptables, "-D", *self._spec)
        else:
            await run_aside(*quietly(*self._inside, *self._iptables, "-D", *self._spec))
        self._removed()
