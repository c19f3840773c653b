"""Implement F33 and F34: a broker that returns before its session expired, and a second process with the same broker
id.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import shutil
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from tidelog.local.broker import broker_command, broker_environment
from tidelog.local.processes.log_tail import last_error_line
from tidelog.local.processes.ports import choose_port
from tidelog.local.processes.process import Process
from verify.chaos.fault import Availability, Evidence, Need, Target
from verify.chaos.faults.processes import BrokerFault, leader_of_one
from verify.chaos.faults.support import bite_detection
from verify.chaos.faults.support.fault_base import FaultBase, Timing, ended

_END_MS = 30_000


class BackAtOnce(BrokerFault):
    """A broker that is killed, and restarted while its old session still exists."""

    row, name = "F33", "leader killed and back before its session ended"
    lasts_ms = (0, 500)

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.refused_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        await self.kill(target, victim)
        await target.start_broker(victim)
        return f"SIGKILL to {victim_name}, started at once"

    def bit(self, evidence: Evidence) -> str | None:
        return bite_detection.registered_again(evidence, self.victims, self.timing.expired_ms)


class StartedTwice(FaultBase):
    """A second process with the same data directory. The lock of the directory must stop it, and the first process must
    continue.
    """

    row, name = "F34", "broker started twice with one data directory"
    refusal = "is in use by another process"
    needs = frozenset({Need.PROCESSES, Need.RESTARTS, Need.FILES})
    lasts_ms = (0, 1_000)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._complaint = self._wrong = ""
        self._victim = -1

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.undisturbed_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        self._victim = victim = rng.choice(target.broker_ids)
        first = target.broker_process(victim)
        written = await asyncio.to_thread(_settings, first.pid)
        config, output = target.directory / "second.toml", target.directory / "second.out"
        for path in (config, output):
            removed = target.undo.to_remove(path)
            self.on_heal(partial(asyncio.to_thread, _remove, path, removed))
        with ExitStack() as held:
            settings = second_settings(written, self.data_dir(target, written), held)
            await asyncio.to_thread(config.write_text, settings)
            command = [*target.place(str(victim)).prefix, *broker_command(config)]
            second = Process.spawn(command, output=output, environment=broker_environment())
            self.on_heal(lambda: asyncio.to_thread(second.stop, 2_000))
            has_ended = await ended(second, _END_MS)
        if not has_ended:
            self._wrong = f"the second process still ran after {_END_MS / 1000:g} s"
        elif not second.exit_status:
            self._wrong = "the second process ended with exit status 0"
        elif not first.running:
            self._wrong = f"the first process, broker {victim}, ended"
        elif self.refusal in (said := await asyncio.to_thread(last_error_line, output)):
            self._complaint = f"the second process ended with status {second.exit_status}: {said}"
        return f"{self.name}: broker {victim}"

    def data_dir(self, target: Target, written: dict[str, Any]) -> str:
        """Return the data directory of the second process; here that of the first one."""
        return str(written["log_dirs"][0])

    def bit(self, evidence: Evidence) -> str | None:
        return self._complaint or None

    def broken(self, evidence: Evidence) -> str | None:
        return self._wrong or bite_detection.registered_anew(evidence, {self._victim})


class SameIdTwice(StartedTwice):
    """A second process with the same broker id and its own data directory. The registration in ZooKeeper must stop it,
    and the first process must continue.
    """

    name = "two brokers with one id"
    refusal = "is registered by another live process"

    def data_dir(self, target: Target, written: dict[str, Any]) -> str:
        directory = target.directory / "second"
        self.on_heal(partial(asyncio.to_thread, shutil.rmtree, directory, ignore_errors=True))
        return str(directory)


def second_settings(written: dict[str, Any], data_dir: str, held: ExitStack) -> str:
    """Return the text of the settings file (TOML) of a second process: other ports, which are reserved until `held`
    is closed, `data_dir`, no HTTP listener, and neither log file nor history file.
    """
    settings = {name: value for name, value in written.items() if name not in ("log_file", "history_file")}
    settings["log_dirs"] = [data_dir]
    for name in ("listeners", "advertised_listeners"):
        if name in settings:
            settings[name] = [re.sub(r":\d+$", f":{choose_port(held)}", each) for each in settings[name]]
    settings["http_listener"] = ""
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())


def _settings(pid: int) -> dict[str, Any]:
    """Return the settings in the files with which the broker of this pid was started."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    files = [Path(word) for before, word in itertools.pairwise(words) if before == "--config"]
    return {name: value for file in files for name, value in tomllib.loads(file.read_text()).items()}


def _remove(path: Path, removed: Callable[[], None]) -> None:
    path.unlink(missing_ok=True)
    removed()
