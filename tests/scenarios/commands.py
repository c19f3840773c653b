"""The commands of the scenarios and what they print.

create brokers=N replicas=1,2,3 [min-isr=N] [unclean]   brokers, one topic, one partition
append VALUE… [to=BROKER]         a producer with acks=all writes to the leader, or to this broker
fetch BROKER                      a follower asks its leader once
late-fetch BROKER registration=N offset=N   a fetch of the broker's earlier process arrives
replicate                         all followers fetch until nothing changes
wait MS                           time passes; live followers fetch, leaders check their ISR
kill BROKER|all                   processes die, and the controller notices
restart BROKER [lost=N]           a process starts; its machine had lost its last N records
cut-off BROKER, heal BROKER       the network of a broker fails, and works again
expire BROKER                     a session ends while the process lives
elect [unclean]                   the first replica becomes leader, or any replica
reassign 2,3,4                    other replicas
hold-isr-writes, answer-isr-writes   ZooKeeper delays its answers to leaders
show                              what each broker has
"""

from __future__ import annotations

from tests.scenarios.stage import Broker, Stage


class Scenario:
    """Runs commands one after the other on one stage."""

    def __init__(self) -> None:
        self._stage: Stage | None = None

    def run(self, command: str) -> str:
        """Return the lines that the command prints."""
        name, *words = command.split()
        options = dict(word.split("=") for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        if name == "create":
            self._stage = Stage(
                _numbers(options["replicas"]),
                int(options["brokers"]),
                int(options.get("min-isr", 1)),
                unclean="unclean" in names,
            )
        assert self._stage is not None, "a scenario begins with create"
        if name != "create":
            lines = _perform(self._stage, name, names, options)
            if lines is not None:
                return "\n".join(lines)
        return "\n".join(self._stage.take_events()) or "nothing changes"


def _perform(stage: Stage, name: str, names: list[str], options: dict[str, str]) -> list[str] | None:
    match name, names:
        case "append", values:
            for value in values:
                stage.append(value, int(options.get("to", stage.leader())))
        case "fetch", [number]:
            stage.fetch(int(number), reports_all=True)
        case "late-fetch", [number]:
            stage.late_fetch(int(number), int(options["registration"]), int(options["offset"]))
        case "replicate", []:
            stage.replicate()
        case "wait", [duration]:
            stage.wait(int(duration))
        case "kill", ["all"]:
            stage.kill_all()
        case "kill", [number]:
            stage.kill(int(number))
        case "restart", [number]:
            stage.restart(int(number), int(options.get("lost", 0)))
        case "cut-off", [number]:
            stage.cut_off(int(number))
        case "heal", [number]:
            stage.heal(int(number))
        case "expire", [number]:
            stage.expire(int(number))
        case "elect", _:
            stage.elect(unclean="unclean" in names)
        case "reassign", [target]:
            stage.reassign(_numbers(target))
        case "hold-isr-writes", []:
            stage.hold_isr_writes()
        case "answer-isr-writes", []:
            stage.answer_isr_writes()
        case "show", []:
            return [_row(each) for each in stage.brokers.values()]
        case _:
            raise ValueError(f"unknown command: {name} {' '.join(names)}")
    return None


def _row(broker: Broker) -> str:
    partition = broker.partition
    role = partition.role.value if broker.is_alive else "down"
    records = " ".join(f"{value}/{epoch}" for epoch, value in broker.log.records) or "empty"
    row = f"broker {broker.broker_id}: {role:8} high watermark {partition.high_watermark}  log {records}"
    if not partition.is_leader:
        return row
    isr = ",".join(map(str, partition.isr))
    pending = f" (proposed {','.join(map(str, partition.pending.state.isr))})" if partition.pending else ""
    return f"{row}  epoch {partition.leader_epoch}, ISR {isr}{pending}"


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))
