"""Members of a group as processes, and what their diaries say when all is over."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.processes.harness.handovers import Kept, Processed, Turn
from tidelog.history.group_operations import Assigned, CommitOk, CommitUnknown
from tidelog.model import TopicPartition
from verify.checker.outcomes import Outcome

PROGRAM = Path(__file__).parent / "group_member.py"

Entry = Mapping[str, Any]


@dataclass(eq=False)
class Member:
    """One process and its diary; `died_s` is the time of the kill, `slept_s` the start of a pause (monotonic)."""

    name: str
    process: subprocess.Popen[bytes]
    diary: Path
    errors: Path
    died_s: float = math.inf
    slept_s: list[float] = field(default_factory=list)

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end."""
        self.slept_s.append(time.monotonic())
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait(10)
        self.died_s = min(self.died_s, time.monotonic())

    def entries(self) -> list[Entry]:
        """Return the diary's lines so far; the last line may be incomplete."""
        if not self.diary.exists():
            return []
        return [json.loads(line) for line in self.diary.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def owned(self) -> set[int]:
        """The partitions that it has as of now; none of the dead."""
        owned: set[int] = set()
        for entry in self.entries() if math.isinf(self.died_s) else ():
            if entry["did"] == "owns":
                owned = set(entry["partitions"])
            elif entry["did"] in ("gives up", "lost"):
                owned -= set(entry["partitions"])
        return owned


@dataclass
class Members:
    """The running and the ended members of a group."""

    directory: Path
    servers: str
    group: str
    topic: str
    strategy: str
    all: list[Member] = field(default_factory=list)

    def start(self) -> Member:
        """Start one more member."""
        name = f"member-{len(self.all)}"
        diary, errors = self.directory / f"{name}.jsonl", self.directory / f"{name}.err"
        arguments = [self.servers, self.group, self.topic, self.strategy, str(diary)]
        with errors.open("wb") as complaints:
            process = subprocess.Popen([sys.executable, PROGRAM, *arguments], stderr=complaints)
        member = Member(name, process, diary, errors)
        self.all.append(member)
        return member

    @property
    def living(self) -> list[Member]:
        return [each for each in self.all if math.isinf(each.died_s)]

    def owned(self, without: Member | None = None) -> set[int]:
        """Return the partitions that members (other than this one) own now."""
        return set().union(*(each.owned() for each in self.living if each is not without))

    def check_alive(self) -> None:
        """Assert that only killed members have ended."""
        for each in self.living:
            assert each.process.poll() is None, f"{each.name} ended: {each.errors.read_text()[-2000:]}"


@contextmanager
def members_of(directory: Path, servers: str, group: str, topic: str, strategy: str) -> Iterator[Members]:
    """None yet; all are killed at the end."""
    members = Members(directory, servers, group, topic, strategy)
    try:
        yield members
    finally:
        for each in members.living:
            each.kill()


# --- diaries ---------------------------------------------------------------------------------------


def assignments(member: str, group: str, topic: str, entries: Iterable[Entry]) -> Iterator[Assigned]:
    """Return the partitions that the member was assigned, by generation."""
    for entry in entries:
        if entry["did"] == "owns":
            tps = [TopicPartition(topic, each) for each in entry["partitions"]]
            yield Assigned(group, member, entry["generation"], tps, _ns(entry["at_s"]))


def commits(group: str, topic: str, entries: Iterable[Entry]) -> Iterator[CommitOk | CommitUnknown]:
    """Return the commits of the member, with the generation of each."""
    for entry in entries:
        if entry["did"] in ("committed", "not committed"):
            began, ended, generation = _ns(entry["began_s"]), _ns(entry["at_s"]), entry["generation"]
            for partition, offset in entry["offsets"].items():
                tp = TopicPartition(topic, int(partition))
                if entry["did"] == "committed":
                    yield CommitOk(group, tp, offset, began, ended, generation)
                else:
                    yield CommitUnknown(group, tp, offset, entry["error"], began, ended, generation)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def turns(
    member: str, topic: str, entries: Sequence[Entry], died_s: float, slept_s: Sequence[float] = ()
) -> Iterator[Turn]:
    """Return the member's turns with each partition. A turn ends at the revocation, at another assignment, at the
    member's death, or at the start of a pause if the partition was lost during the pause."""
    open_turns: dict[int, Turn] = {}

    def end(partitions: Iterable[int], at_s: float) -> Iterator[Turn]:
        for partition in sorted(open_turns.keys() & set(partitions)):
            turn = open_turns.pop(partition)
            turn.until_s = at_s
            yield turn

    for entry in entries:
        did, at_s = entry["did"], entry["at_s"]
        if did == "owns":
            owned = set(entry["partitions"])
            yield from end(open_turns.keys() - owned, at_s)
            for partition in sorted(owned - open_turns.keys()):
                open_turns[partition] = Turn(TopicPartition(topic, partition), member, at_s, died_s)
        elif did == "gives up":
            yield from end(entry["partitions"], at_s)
        elif did == "lost":
            for turn in end(entry["partitions"], at_s):
                turn.until_s = max((each for each in slept_s if turn.since_s < each < at_s), default=at_s)
                yield turn
        elif did == "processed":
            offsets = range(entry["first"], entry["last"] + 1)
            open_turns[entry["partition"]].processed.append(Processed(offsets, at_s))
        elif did in ("committed", "not committed"):
            outcome = Outcome.OK if did == "committed" else Outcome.UNKNOWN
            for partition, offset in entry["offsets"].items():
                # A turn may have ended while it committed, and the commit was made in it nonetheless.
                if int(partition) in open_turns:
                    open_turns[int(partition)].kept.append(Kept(offset, outcome, at_s))
    yield from end(list(open_turns), died_s)
