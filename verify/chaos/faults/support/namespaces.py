"""Provide a network for the run: ZooKeeper and each broker in a network namespace of its own, connected by one bridge.

    this machine ── tlXXXXhost ──┐
                                 ├── bridge in the namespace tidelog-XXXX-switch
    tidelog-XXXX-1  ──── eth0 ───┤
    tidelog-XXXX-zookeeper ──────┘

The clients stay on this machine and are connected to the bridge too. The addresses are of 198.18.0.0/15, which is
reserved for tests (RFC 2544).
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tidelog.errors import LocalError
from tidelog.local.processes.process_placement import ZOOKEEPER
from verify.chaos.fault import Need, Placement, UndoLog
from verify.chaos.faults.support.tools import lacking, quietly, run

PREFIX = "tidelog"
#: The clients, as a member of the network.
CLIENTS = "clients"
NAMESPACES = Path("/run/netns")
_TOOLS = ("ip", "nsenter", "iptables", "tc")
_LAST = {ZOOKEEPER: 251, CLIENTS: 250}


class Namespaces:
    """The prerequisite for `Need.NETWORK`. Its members are "zookeeper", broker ids such as "1", and "clients"."""

    need = Need.NETWORK

    def __init__(self) -> None:
        self._id = ""
        self._subnet = ""
        self._made: list[str] = []

    def missing(self) -> str | None:
        """Return why this machine cannot provide namespaces, or None if it can. The call creates one to find out, and
        blocks.
        """
        if (reason := lacking(_TOOLS)) is not None:
            return reason
        probe = f"{PREFIX}-{_new_id()}-probe"
        try:
            run("ip", "netns", "add", probe)
        except LocalError as error:
            return f"cannot create network namespaces here ({error})"
        try:
            run("ip", "-n", probe, "link", "add", "br0", "type", "bridge")
            run("ip", "-n", probe, "link", "add", "end0", "type", "veth", "peer", "name", "end1")
            comment = ("-m", "comment", "--comment", "probe")
            run(*_inside(probe), "iptables", "-w", "5", "-A", "INPUT", *comment, "-j", "DROP")
        except LocalError as error:
            return f"the kernel lacks a feature ({error})"
        finally:
            run("ip", "netns", "del", probe)
        return None

    async def set_up(self, undo: UndoLog, directory: Path, places: Mapping[str, Placement]) -> Mapping[str, Placement]:
        """Create the network, and return the placements, each with its address and the command that enters its
        namespace.

        Raise LocalError if a command fails or no network of 198.18.0.0/16 is free.
        """
        return await asyncio.to_thread(self._set_up, undo, places)

    async def tear_down(self) -> None:
        """Remove the namespaces, and with them every link."""
        made, self._made = self._made, []
        for name in reversed(made):
            await asyncio.to_thread(run, *quietly("ip", "netns", "del", name))

    # --- queries of faults ---------------------------------------------------------------------------------------

    def namespace(self, member: str) -> str:
        """Return the name of the namespace of a member other than the clients; "switch" is that of the bridge."""
        return f"{PREFIX}-{self._id}-{member}"

    def inside(self, member: str) -> tuple[str, ...]:
        """Return the prefix of a command that runs it in a member's namespace."""
        return _inside(self.namespace(member))

    def address(self, member: str) -> str:
        """Return the IPv4 address of a member."""
        return f"{self._subnet}.{_LAST.get(member) or member}"

    def port(self, member: str) -> str:
        """Return the name of a member's link in the namespace of the bridge."""
        return f"to-{member}"[:15]

    # --- building ----------------------------------------------------------------------------------------------

    def _set_up(self, undo: UndoLog, places: Mapping[str, Placement]) -> Mapping[str, Placement]:
        self._id = _new_id()
        self._subnet = _free_subnet()
        for member in ("switch", *places):
            name = self.namespace(member)
            undo.to_run(*quietly("ip", "netns", "del", name))
            self._made.append(name)
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        switch = self.namespace("switch")
        run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge", "up")
        for member in places:
            self._plug_in(member, "eth0", ("-n", self.namespace(member)))
        self._plug_in(CLIENTS, f"tl{self._id}host", ())
        return {
            name: replace(place, address=self.address(name), prefix=(*self.inside(name), *place.prefix))
            for name, place in places.items()
        }

    def _plug_in(self, member: str, device: str, where: tuple[str, ...]) -> None:
        switch, port = self.namespace("switch"), self.port(member)
        run("ip", *where, "link", "add", device, "type", "veth", "peer", "name", port, "netns", switch)
        run("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
        run("ip", *where, "addr", "add", f"{self.address(member)}/24", "dev", device)
        run("ip", *where, "link", "set", device, "up")


def _inside(namespace: str) -> tuple[str, ...]:
    # `ip netns exec` is not used, because it also gives the process a mount namespace without the disks mounted later.
    return ("nsenter", f"--net={NAMESPACES / namespace}")


def _new_id() -> str:
    return os.urandom(2).hex()


def _free_subnet() -> str:
    for third in random.sample(range(256), 256):
        subnet = f"198.18.{third}"
        if not run("ip", "-4", "route", "show", f"{subnet}.0/24").strip():
            return subnet
    raise LocalError("all networks of 198.18.0.0/16 are in use here")
