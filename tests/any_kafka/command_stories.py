"""The commands that tests type on each cluster, as short stories, and what each command prints.

In a command line `{topic}` is a topic of the story's own with two partitions, `{group}` a group of its own, and
`{directory}` the log directory of broker 1. The ten lines of `LINES` have timestamps one second apart from `T0` on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import click

from tests.typed_commands import find
from tidelog.cli.program import tidelog

T0 = 1_700_000_000_000
LINES = b"".join(
    json.dumps({"value": f"v{number}", "partition": number % 2, "timestamp": T0 + 1000 * number}).encode() + b"\n"
    for number in range(10)
)

#: The refusal of a call that only brokers of Tidelog answer.
NEEDS_TIDELOG = (
    r"^tidelog: .*needs a cluster of Tidelog, and .* is not a broker of Tidelog;"
    r" topics, records, look-ups, groups, settings, elections and reassignments work with any Kafka cluster$"
)
#: The refusal of a request whose version Kafka 4 has removed.
_REMOVED = {"kafka-4.1": r"^tidelog: .*this client supports versions 0 to 0, the broker at .* versions 1 to \d+$"}
ON_KAFKA = {"kafka-3.9": NEEDS_TIDELOG, "kafka-4.1": NEEDS_TIDELOG}


@dataclass(frozen=True)
class Step:
    """One command.

    line      as a user types it, without --bootstrap-servers
    shows     a pattern of standard output and standard error together
    given     standard input
    status    the exit status
    refused   by kind of cluster, the pattern of the one line with which the command is refused there, with status 1
    """

    line: str
    shows: str = ""
    given: bytes = b""
    status: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """Return the command's name without its arguments, such as "topic create"."""
        words = self.line.format(topic="t", group="g", directory="/d")
        _, context, _ = find(f"tidelog {words}")
        return context.command_path.removeprefix("tidelog ")


_WRITTEN = Step("produce {topic} --format json", r"^tidelog: wrote 10 records|^wrote 10 records", LINES)

STORIES: Mapping[str, tuple[Step, ...]] = {
    "a topic lives": (
        Step(
            "topic create {topic}-new --partitions 2 --config retention.ms=60000", "^created {topic}-new: 2 partitions"
        ),
        Step("topic create {topic}-new", "exists already", status=1),
        Step("topic create {topic}-other --replication-factor 1 --json", '"replication_factor": 1'),
        Step("topic list", "^{topic}-new$"),
        Step("topic list --json", '"{topic}-new"'),
        Step("topic describe {topic}", r"^ +0 +\d +0 +[123,]+ +[123,]+ +0 (.*\n)+cluster: KIND$"),
        Step("topic describe {topic} --json", '"cluster": "KIND"'),
        Step("topic alter {topic}-new --partitions 3", "^{topic}-new has 3 partitions now$"),
        Step("topic alter {topic}-new --config retention.ms=61000 --json", '"retention.ms": "61000"'),
        Step("topic alter {topic}-new --config retention.ms=soon", r"retention\.ms", status=1),
        Step("topic alter {topic}-new --config min.insync.replicas=2", r"^{topic}-new: min\.insync\.replicas=2$"),
        Step("topic alter {topic}-new --delete-config retention.ms", r"^{topic}-new: retention\.ms has the brokers'"),
        Step("topic delete {topic}-new {topic}-other", "^deleted {topic}-new\ndeleted {topic}-other$"),
        Step("topic delete {topic}-never --json", "no topic '{topic}-never'", status=1),
    ),
    "settings are shown": (
        Step("config describe {topic}", r"^min\.insync\.replicas +2 +topic$"),
        Step("config describe {topic} --json", r'"min\.insync\.replicas"'),
        Step("config describe --broker 1", r"^\S+ +\S+ +"),
    ),
    "records are written and read": (
        _WRITTEN,
        Step(
            "produce {topic} --partition 1 --acks 1 --compression zstd --key-separator :",
            "wrote 2 records",
            b"k:a\nk:b\n",
        ),
        Step("produce {topic} --partition 1 --acks 0 --json --format lines", '"records": 1', b"c\n"),
        Step("consume {topic} --partition 0", r"^v0\nv2\nv4\nv6\nv8\n$"),
        Step("consume {topic} --from 3 --partition 0 --json", '"offset":3,.*"value":"v6"'),
        Step(f"consume {{topic}} --from {T0 + 2000} --until {T0 + 6000} --partition 0", r"v2\nv4\n$"),
        Step("consume {topic} --from 2023-11-14T22:13:24Z --until 2023-11-14T22:13:26Z --partition 0", r"v4\n$"),
        Step("consume {topic} --from 1 --until 3 --partition 0", r"^v2\nv4\n$"),
        Step("consume {topic} --from -1h --partition 0", "past_end|newer|end"),
        Step("consume {topic} --from 99 --partition 0", "is past the end", status=1),
        Step("consume {topic}-never", "no topic '{topic}-never'", status=1),
    ),
    "offsets are found by time": (
        _WRITTEN,
        Step(f"offsets {{topic}} --at {T0 + 4500}", r"^ +0 +3 +2023-11-14T22:13:26\.000Z"),
        Step(f"offsets {{topic}} --at {T0 + 4500} --json", f'"offset": 3, "timestamp": {T0 + 6000}'),
        Step(f"offsets {{topic}} --at {T0 - 1}", "before_log_start"),
        Step(f"offsets {{topic}} --at {T0 + 99_000}", "past_end: every record is older"),
        Step(
            "offsets {topic} --before latest --max 2",
            r"^ +0 +5, 0",
            refused=_REMOVED,
        ),
        Step("topic describe {topic} --times", r"^ +0 +5 .*2023-11-14T22:13:20\.000Z(.*\n)+cluster: KIND$"),
        Step("topic describe {topic} --times --json", '"records": 5.*"newest": {{"offset": 4'),
    ),
    "a group commits, is shown, reset and deleted": (
        _WRITTEN,
        Step("consume {topic} --group {group} --count 4", r"^v\d$"),
        Step("consume {topic} --group {group}", r"^v\d$"),
        Step("group list", "^{group} +Empty +consumer"),
        Step("group list --state Empty --json", '"{group}"'),
        Step("group describe {group}", r"^{group} +Empty(.*\n)+{topic} +0 +5 +5 +0 +0"),
        Step("group describe {group} --json", '"lag": 0'),
        Step("group describe {group} --state", r"^{group} +Empty"),
        Step("group describe {group} --members --json", '"members": '),
        Step("group describe {group} --rate 0.1", "{topic}"),
        Step(f"group reset {{group}} --topic {{topic}} --to-time {T0 + 4000}", "nothing is changed yet"),
        Step(f"group reset {{group}} --topic {{topic}} --to-time {T0 + 4000} --execute", r"^{topic} +0 +5 +2 +-3"),
        Step("group describe {group} --json", '"lag": 6'),
        Step("group reset {group} --topic {topic}:0 --to-earliest --execute --json", '"executed": true'),
        Step("group reset {group} --all-topics --shift-by 1 --execute", "{topic}"),
        Step("consume {topic} --group {group}", r"^v2$"),
        Step("group remove-member {group} --instance-id absent", "group describe {group} --members", status=1),
        Step("group delete {group} --topic {topic}:1", "{group}"),
        Step("group delete {group}", "{group}"),
        Step("group describe {group}", "no group '{group}'", status=1),
    ),
    "old consumers' offsets are in ZooKeeper": (
        Step("group migrate {group}", "{group}", status=1, refused=ON_KAFKA),
        Step("group migrate --all --json", '"groups": ', refused=ON_KAFKA),
    ),
    "records are deleted": (
        _WRITTEN,
        Step("topic delete-records {topic} --before 0:3", r"^ +0 +0 +3 +3(.*\n)+.*nothing is changed yet"),
        Step("topic delete-records {topic} --before 0:3 --before 1:end --execute --json", '"executed": true'),
        Step("consume {topic}", r"^v6\nv8\n"),
        Step("consume {topic} --from 0 --partition 0", "offset 0", status=1),
    ),
    "partitions move and elect": (
        Step("topic reassign {topic} --replicas 0:3,1,2 --replicas 1:1,2", "pass --yes", status=2),
        Step("topic reassign {topic} --replicas 0:3,1,2", r"^{topic}/0: (replicas .* → 3,1,2|has the replicas)"),
        Step("topic reassign {topic} --status --json", '"topic": "{topic}"'),
        Step("topic reassign {topic} --cancel", "{topic}|no reassignment"),
        Step("topic reassign {topic} --replicas 0:2,3,1 --throttle 10MB/s --json", '"throttle": 10000000'),
        Step("topic reassign --status --wait --json", '"topic": null, "changes": [], "reassignments": []'),
        Step("topic elect {topic}", r"^ +0 +[123] +(elected|not needed)"),
        Step("topic elect {topic} --partition 1 --json", '"partition": 1'),
    ),
    "log directories are shown": (
        Step("logdirs", r"^ +1 +/.* online$"),
        Step("logdirs --topic {topic} --json", '"topic": "{topic}"'),
        Step("logdirs move {topic}/0 --broker 1 --to {directory}", r"^{topic}/0 is in {directory} of broker 1$"),
    ),
    "the cluster is checked": (
        Step("brokers", r"^ +1 +127\.0\.0\.1:\d+ +(yes|no)"),
        Step("brokers --json", '"rack": '),
        Step("doctor", r"^ok +cluster +KIND(.*\n)+ok +broker 1 (.*\n)+ok +controller +broker \d"),
        Step("doctor --json", '"name": "cluster", "state": "ok", "sentence": "KIND'),
        Step("explain {topic}/0", "^nothing is wrong$", refused=ON_KAFKA),
        Step("explain {topic}/0 --json", '"healthy": true', refused=ON_KAFKA),
        Step("clients", "^tidelog-cli +tidelog/", refused=ON_KAFKA),
        Step("clients --all --json", '"connections": ', refused=ON_KAFKA),
    ),
}


def refusal(kind: str, command: str) -> str | None:
    """Return the pattern with which the command is refused on this kind of cluster; None if any use of it works."""
    steps = [step for story in STORIES.values() for step in story if step.command == command]
    if all(kind in step.refused for step in steps):
        return steps[0].refused[kind]
    return None


def client_commands() -> set[str]:
    """Return the names of all commands of the program that talk to a cluster.

    The chaos command is left out, because it breaks the cluster, which must be one of Tidelog on this machine.
    """
    leaves = [(name, command) for name, command in _leaves("", tidelog) if name != "chaos"]
    return {name for name, command in leaves if any(each.name == _SERVERS for each in command.params)}


_SERVERS = "bootstrap_servers"


def _leaves(name: str, command: click.Command) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return [(name, command)]
    context = click.Context(command)
    own = [(name, command)] if command.invoke_without_command else []
    for each in command.list_commands(context):
        found = command.get_command(context, each)
        assert found is not None
        own += _leaves(f"{name} {each}".strip(), found)
    return own
