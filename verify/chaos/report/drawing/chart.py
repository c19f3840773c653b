"""The chart of everything that happened in a run, on one time axis."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import log10

from tidelog.model import TopicPartition
from verify.chaos.injections import Injection
from verify.chaos.report.availability import Gap
from verify.chaos.report.drawing.axis import LEVELS, Axis
from verify.chaos.report.drawing.lanes import (
    Palette,
    area,
    bands,
    broken_line,
    drawing,
    key,
    lane,
    levels,
    line,
    named,
    strip,
)
from verify.chaos.report.drawing.markup import Markup, element, together
from verify.chaos.report.facts import PartitionFacts, RunFacts
from verify.chaos.report.sampling import Slices, counted, percentiles, summed, thinned, thinned_levels, thinned_spans

#: The most parts of the axis for rates and latencies, and the shortest length of a part.
_PARTS, _SHORTEST_NS = 600, 500_000_000
#: The number of marks for all partitions together, and the least and most marks of one strip.
_MARKS, _LEAST_MARKS, _MOST_MARKS = 24_000, 40, 400
#: The most partitions that are drawn. Those with the most events come first.
MOST_PARTITIONS = 64
#: The rows of faults, and the share of the axis that a fault's name takes.
_FAULT_ROWS, _FAULT_NAME = 10, 0.03
_HINT = "Move the mouse over the chart to read values; drag to zoom in, double-click to show everything again."
#: The longest description of a fault in its tooltip.
_LONGEST_TEXT = 200
#: The scale of rates extends to this multiple of the value below which this share of the rates lies.
_HEADROOM, _USUAL = 1.5, 0.95
#: The range of drawn latencies in ns; their scale is logarithmic.
_LEAST_LATENCY, _MOST_LATENCY = 1e5, 1e11
_SECOND_NS = 1_000_000_000


def chart(facts: RunFacts, faults: Sequence[Injection], gaps: Sequence[Gap]) -> Markup:
    """Return the chart: load, latencies, faults, gaps, controllers, sessions, and at most 64 partitions, on one time
    axis.

    The element includes the data that the page's script shows for the time under the mouse.
    """
    axis = Axis(facts.begin, facts.end)
    slices = Slices(facts.begin, facts.end, min(max((facts.end - facts.begin) // _SHORTEST_NS, 1), _PARTS))
    palette = Palette(_brokers(facts))
    shown = _busiest(facts)
    marks = min(max(_MARKS // (4 * max(len(shown), 1)), _LEAST_MARKS), _MOST_MARKS)
    fine = Slices(facts.begin, facts.end, marks)
    load, series = _load(facts, slices)
    lanes = [
        _faults(faults, axis),
        *load,
        _unavailable(gaps, fine),
        lane("controller", strip(bands(thinned_spans(facts.controllers, fine), axis, palette, "broker"), kind="bar")),
        _sessions(facts, axis, fine),
        *(_partition(tp, facts.partitions[tp], axis, fine, palette, gaps) for tp in shown),
    ]
    left_out = len(facts.partitions) - len(shown)
    return together(
        palette.legend(),
        element("p", f"{left_out} more partitions with fewer events or without records are not drawn.")
        if left_out
        else None,
        element(
            "div",
            _background(faults, axis),
            element("div", axis.marks(), class_="axis"),
            *lanes,
            element("div", class_="cursor"),
            class_="chart",
            id="chart",
            data_level=0,
            data_levels=LEVELS,
        ),
        element(
            "p",
            _HINT,
            id="readout",
        ),
        _data({"length": (facts.end - facts.begin) / _SECOND_NS, "faults": _active(faults, axis), **series}),
    )


def _brokers(facts: RunFacts) -> list[int]:
    leaders = (span for partition in facts.partitions.values() for span in partition.leaders)
    return sorted(
        {*facts.sessions, *(span.broker for span in (*leaders, *facts.controllers) if span.broker is not None)}
    )


def _busiest(facts: RunFacts) -> list[TopicPartition]:
    def events(tp: TopicPartition) -> tuple[bool, int, int]:
        partition = facts.partitions[tp]
        # A load may have thousands of partitions without records, with as many leaders as the others.
        has_records = is_internal(tp) or bool(partition.acknowledged)
        return has_records, len(partition.leaders) + len(partition.isr), len(partition.acknowledged)

    def is_internal(tp: TopicPartition) -> bool:
        return tp.topic.startswith("__")

    # The cluster's internal topics come last.
    return sorted(
        sorted(facts.partitions, key=events, reverse=True)[:MOST_PARTITIONS],
        key=lambda tp: (is_internal(tp), tp),
    )


def _background(faults: Sequence[Injection], axis: Axis) -> Markup:
    """Return a band in the background for each fault that was injected."""
    drawn = [
        element("div", class_=f"shade {fault.outcome}", style=axis.place(fault.t_inject, _end_of(fault, axis)))
        for fault in faults
        if fault.t_inject is not None
    ]
    return element("div", element("div", *drawn, class_="strip"), class_="track behind")


def _faults(faults: Sequence[Injection], axis: Axis) -> Markup:
    free_from = [0.0] * _FAULT_ROWS
    drawn = []
    for fault in sorted((f for f in faults if f.t_inject is not None), key=lambda f: f.t_inject or 0):
        assert fault.t_inject is not None
        end = _end_of(fault, axis)
        begins, ends = axis.share(fault.t_inject), axis.share(end)
        row = next((row for row, free in enumerate(free_from) if free <= begins), _FAULT_ROWS - 1)
        free_from[row] = max(ends, begins + _FAULT_NAME)
        when = f"{axis.seconds(fault.t_inject)} – {axis.seconds(end)}"
        drawn.append(
            element(
                "div",
                element("span", fault.row),
                class_=f"fault {fault.outcome}",
                style=f"{axis.place(fault.t_inject, end)};top:{18 * row}px",
                title=f"{fault.row} {fault.name} ({fault.outcome}), {when}\n{fault.what[:_LONGEST_TEXT]}".rstrip(),
            )
        )
    rows = 1 + max((row for row, free in enumerate(free_from) if free), default=0)
    track = element("div", element("div", *drawn, class_="strip"), class_="track", style=f"height:{18 * rows}px")
    return lane("faults", track)


def _end_of(fault: Injection, axis: Axis) -> int:
    return axis.end if fault.t_heal is None else fault.t_heal


def _load(facts: RunFacts, slices: Slices) -> tuple[Sequence[Markup], dict[str, object]]:
    """Return the lanes of records written, records read and latencies over time, and their values for the script by
    name.
    """
    part_s = slices.width / _SECOND_NS
    acknowledged = [0.0] * slices.count
    for partition in facts.partitions.values():
        for index, count in enumerate(counted(partition.acknowledged, slices)):
            acknowledged[index] += count / part_s
    read = [count / part_s for count in summed(facts.records_read, slices)]
    unfinished = [count / part_s for count in counted(facts.unfinished, slices)]
    written = _rates("records written", {"acknowledged": "acks", "failed or unknown": "bad"}, acknowledged, unfinished)
    stamps = percentiles(facts.latencies, slices, (0.5, 0.99, 1.0))
    columns = [[None if stamp is None else stamp[which] for stamp in stamps] for which in range(3)]
    latency = lane(
        together(
            element("strong", "latency of produce requests"),
            key({"median": "median", "99 %": "p99", "longest": "longest"}),
        ),
        strip(
            drawing(
                *(
                    broken_line([None if value is None else _log_share(value) for value in column], kind)
                    for column, kind in zip(columns, ("median", "p99", "longest"), strict=True)
                )
            ),
            kind="tall",
            beside=_scale([(_log_share(at), text) for at, text in _LATENCY_MARKS]),
        ),
    )
    in_ms = [[None if value is None else round(value / 1e6, 2) for value in column] for column in columns[:2]]
    series = {
        "acks": [round(v) for v in acknowledged],
        "reads": [round(v) for v in read],
        "bad": [round(v) for v in unfinished],
    }
    read_lane = _rates("records read", {"read": "reads"}, read)
    return (written, read_lane, latency), {**series, "median": in_ms[0], "p99": in_ms[1]}


def _rates(name: str, kinds: Mapping[str, str], *rates: Sequence[float]) -> Markup:
    """Return a lane of rates with one scale; `kinds` maps the name of each rate to its CSS class.

    Reads have a separate lane, because far more records are read than written.
    """
    values = sorted(value for rate in rates for value in rate)
    # Delayed records arrive all at once: a few such peaks would flatten everything else.
    most = max(min(values[-1], _HEADROOM * values[int(_USUAL * (len(values) - 1))]), 1.0)
    highest = f"{most:,.0f}/s" if most >= values[-1] else f"{most:,.0f}/s, at most {values[-1]:,.0f}/s"
    drawn = (area([value / most for value in rate], kind) for rate, kind in zip(rates, kinds.values(), strict=True))
    return lane(
        together(element("strong", f"{name}/s"), key(kinds)),
        strip(drawing(*drawn), kind="middle", beside=_scale([(1.0, highest), (0.0, "0")])),
    )


_LATENCY_MARKS = ((1e6, "1 ms"), (1e8, "100 ms"), (1e10, "10 s"))


def _log_share(latency: float) -> float:
    return log10(max(latency, _LEAST_LATENCY) / _LEAST_LATENCY) / log10(_MOST_LATENCY / _LEAST_LATENCY)


def _scale(marks: Iterable[tuple[float, str]]) -> Markup:
    drawn = (element("i", element("b", text), style=f"bottom:{100 * share:.0f}%") for share, text in marks)
    return element("div", *drawn, class_="scale")


def _unavailable(gaps: Sequence[Gap], slices: Slices) -> Markup:
    counts = [0] * slices.count
    for gap in gaps:
        for index in range(slices(gap.begin), slices(gap.end) + 1):
            counts[index] += 1
    most = max(*counts, 1)
    name = together(element("strong", "partitions unavailable"), element("small", "no acknowledged produce request"))
    shape = drawing(area([count / most for count in counts], "gone"))
    return lane(name, strip(shape, kind="low", beside=_scale([(1.0, str(most))])))


def _sessions(facts: RunFacts, axis: Axis, slices: Slices) -> Markup:
    rows = []
    for broker_id, spans in facts.sessions.items():
        drawn = [
            element(
                "div",
                element("span", span.what),
                class_=f"band session {span.what.split()[0].rstrip(':')}",
                style=axis.place(span.begin, span.end),
                title=f"broker {broker_id}: {span.what}, {axis.seconds(span.begin)} – {axis.seconds(span.end)}",
            )
            for span in thinned_spans(spans, slices)
        ]
        rows.append(named(f"broker {broker_id}", strip(*drawn, kind="bar")))
    return lane(element("strong", "ZooKeeper sessions"), *rows)


def _partition(
    tp: TopicPartition, facts: PartitionFacts, axis: Axis, slices: Slices, palette: Palette, gaps: Sequence[Gap]
) -> Markup:
    full = max((level.height for level in facts.isr), default=0)
    highest = max(facts.high_watermarks.values, default=0)
    watermarks = thinned(facts.high_watermarks, slices)
    points = [(axis.share(time), value / max(highest, 1)) for time, value in watermarks]
    points += [(1.0, points[-1][1])] if points else []
    missing = [
        element(
            "div",
            class_="band missing",
            style=axis.place(gap.begin, gap.end),
            title=f"no acknowledged produce request for {(gap.end - gap.begin) / _SECOND_NS:.2f} s",
        )
        for gap in gaps
        if gap.tp == tp
    ]
    return lane(
        element("strong", str(tp), title=str(tp)),
        named(
            "leader · epoch", strip(bands(thinned_spans(facts.leaders, slices), axis, palette, "leader"), kind="bar")
        ),
        named("unavailable", strip(*missing, kind="thin")),
        named(f"ISR of {full}", strip(levels(thinned_levels(facts.isr, slices), axis, full), kind="bar")),
        named(
            f"HW to {highest:,}",
            strip(drawing(line(points, "watermark", steps=True)), kind="bar"),
            title="the leaders' high watermark",
        ),
        kind="partition",
    )


def _active(faults: Sequence[Injection], axis: Axis) -> list[tuple[float, float, str]]:
    return [
        (round(axis.share(f.t_inject), 5), round(axis.share(_end_of(f, axis)), 5), f"{f.row} {f.name}")
        for f in faults
        if f.t_inject is not None
    ]


def _data(data: object) -> Markup:
    """Return the data as JSON in an element for the script, with `<` escaped, because a `<` would end the element."""
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return Markup(f'<script type="application/json" id="data">{text}</script>')
