"""Writes the results as a Markdown table, for the terminal and for a document, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tools.bench.results import Figure, Results

KAFKA = "Kafka 3.9"
_NONE = "–"
_OTHER_CLIENT = "our Python client; Kafka's side: confluent-kafka, in C"


def markdown(figures: Sequence[Figure], results: Results) -> str:
    """Return a Markdown table with one row for each figure: medians, spread, aim, bound and Kafka's medians.

    Empty columns are left out.
    """
    heading = ["figure", "Tidelog", "lowest–highest", "aim", "reached"]
    heading += ["bound", "of the bound", KAFKA, f"of {KAFKA}"]
    rows = [_row(figure, results) for figure in figures]
    used = [column for column in range(len(heading)) if any(row[column] for row in rows) or column < 2]
    lines = [
        [heading[column] for column in used],
        ["-" if column == 0 else "-:" for column in used],
        *([row[column] or "" for column in used] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _row(figure: Figure, results: Results) -> list[str]:
    median = results.median(figure.key)
    values = results.values.get(figure.key, [])
    bound = results.median(figure.bound)
    kafka = results.kafka_median(figure.kafka)
    reached = results.reached(figure)
    return [
        figure.what if kafka is None or figure.same_client else f"{figure.what} ({_OTHER_CLIENT})",
        _NONE if median is None else f"{number(median)} {figure.unit}",
        _spread(values),
        figure.aim and aim_of(figure),
        "" if reached is None else "yes" if reached else "no",
        "" if bound is None else number(bound),
        _ratio(median, bound),
        "" if kafka is None else " ".join(filter(None, (number(kafka), _spread(results.kafka[figure.kafka], "({})")))),
        _ratio(median, kafka),
    ]


def aim_of(figure: Figure) -> str:
    """Return the aim with its unit."""
    return figure.aim if figure.is_relative else f"{figure.aim} {figure.unit}"


def _spread(values: Sequence[float], form: str = "{}") -> str:
    return form.format(f"{number(min(values))}–{number(max(values))}") if len(values) > 1 else ""


def _ratio(value: float | None, reference: float | None) -> str:
    return "" if value is None or not reference else f"{number(value / reference)} ×"


def number(value: float) -> str:
    """Return a number as text with three significant digits, and commas between thousands."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        digits = len(str(int(abs(value)))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def as_json(figures: Sequence[Figure], results: Results) -> list[dict[str, Any]]:
    """Return each figure with its median, values, aim, bound and Kafka's values; None, or no values, if missing."""
    return [
        {
            "key": figure.key,
            "what": figure.what,
            "unit": figure.unit,
            "median": results.median(figure.key),
            "values": results.values.get(figure.key, []),
            "aim": figure.aim or None,
            "reached": results.reached(figure),
            "bound": results.median(figure.bound),
            "kafka_median": results.kafka_median(figure.kafka),
            "kafka_values": results.kafka.get(figure.kafka, []),
        }
        for figure in figures
    ]
