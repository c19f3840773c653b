"""The scenarios, each with the rows of the fault catalogue that it injects.

The letters of the catalogue are A processes (F1–F18), B network (F19–F34), C ZooKeeper (F35–F42), D storage and clock
(F43–F55).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scenario:
    """A named selection of faults. Empty `rows` mean all rows.

    `seconds` is about how long a run takes that injects each of the rows once. `about` is the help text.
    """

    name: str
    about: str
    rows: tuple[str, ...]
    seconds: int


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("leader-kill", "leaders, and leaders that are controllers, killed", ("F1", "F6"), 30),
        Scenario("rolling", "brokers stopped and started one after another", ("F11", "F13"), 60),
        Scenario(
            "partition",
            "brokers, ZooKeeper and clients cut off from each other, lossy and slow networks",
            tuple(f"F{row}" for row in range(19, 33)),
            240,
        ),
        Scenario(
            "zk-outage",
            "ZooKeeper killed, paused and slow; sessions that expire",
            ("F35", "F36", "F37", "F38", "F39", "F40"),
            120,
        ),
        Scenario("disk-full", "disks full, slow, read-only and failing", ("F50", "F51", "F52", "F53"), 90),
        Scenario("zombie", "brokers and controllers paused, then woken", ("F7", "F8", "F9", "F10", "F41"), 120),
        Scenario("power-loss", "machines that lose what was not on the disk", ("F43", "F44"), 60),
        Scenario("all", "every row of the catalogue", (), 600),
    )
}


def rows_of(scenario: Scenario, known: Collection[str], only: Collection[str] = ()) -> tuple[str, ...]:
    """Return the rows of the scenario in the catalogue's order, including rows without an implemented fault.

    A scenario that names no rows has all `known` ones. If `only` is not empty, return only the rows in it. Raise
    ValueError if a row in `only` is not a row of the scenario.
    """
    rows = scenario.rows or tuple(sorted(known, key=row_number))
    if foreign := [row for row in only if row not in rows]:
        raise ValueError(f"scenario {scenario.name} has no row {foreign[0]!r}: it has {', '.join(rows)}")
    return tuple(row for row in rows if row in only) if only else rows


def row_number(row: str) -> int:
    """Return the number of a row: 7 for "F7". Raise ValueError if no number follows the first character."""
    return int(row[1:])
