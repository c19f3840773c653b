"""Build the report page: the verdict, the faults, the observations of each invariant, and the chart on one time
axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from verify.chaos.injections import Injection
from verify.chaos.report.availability import Gap, meanwhile, unavailable
from verify.chaos.report.drawing.axis import Axis
from verify.chaos.report.drawing.chart import chart
from verify.chaos.report.drawing.markup import Markup, Part, element, together
from verify.chaos.report.facts import About, RunFacts
from verify.chaos.report.promises import PROMISES, number_of
from verify.chaos.report.verdict import headline
from verify.chaos.results.verdict import RowCount, count_rows, judged_attempts
from verify.checker.findings import Finding
from verify.checker.verdict import Row, Status, Verdict

#: The most entries that are shown. Further ones are only counted.
_MOST_FAULTS, _MOST_VIOLATIONS, _MOST_OPERATIONS, _MOST_GAPS = 500, 10, 12, 15
_LONGEST_TEXT = 300
#: The most gaps in the chart: the longest ones of all partitions.
_MOST_DRAWN_GAPS = 2000


def page(
    title: str,
    facts: RunFacts,
    faults: Sequence[Injection],
    verdict: Verdict | None,
    about: About = About(),  # noqa: B008 - it is frozen
) -> str:
    """Return the HTML page, which needs no other file. `verdict` None: the histories were not checked.

    The page shows at most 500 faults.
    """
    axis = Axis(facts.begin, facts.end)
    absent = unavailable(facts)
    counts = count_rows([*{*about.rows, *(fault.row for fault in faults)}], faults)
    faults = judged_attempts(faults)
    passed, sentence, against = headline(verdict, counts, about.troubles)
    body = together(
        element("h1", title),
        _about(facts, about),
        _verdict(passed, sentence, [*against, *facts.complaints[:_MOST_VIOLATIONS]]),
        element("h2", "Events on one time axis"),
        chart(facts, faults[:_MOST_FAULTS], absent[:_MOST_DRAWN_GAPS]),
        _violations(verdict, axis) if verdict is not None else None,
        element("h2", "Faults"),
        _faults(counts, faults, axis),
        element("h2", "Promises"),
        _invariants(verdict.rows if verdict is not None else ()),
        element("h2", "Longest times without an acknowledged produce request"),
        _gaps(absent, faults, axis),
    )
    mark = {True: "passed", False: "failed", None: "not proved"}[passed]
    head = together(
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title}: {mark}"),
        element("style", Markup(_resource("page.css"))),
    )
    script = element("script", Markup(_resource("page.js")))
    return "<!doctype html>\n" + element("html", element("head", head), element("body", body, script), lang="en") + "\n"


def _resource(name: str) -> str:
    return files("verify.chaos.report").joinpath(name).read_text(encoding="utf-8")


def _about(facts: RunFacts, about: About) -> Markup:
    acknowledged = sum(len(partition.acknowledged) for partition in facts.partitions.values())
    facts_line = [
        *(f"{name} {value}" for name, value in about.values.items()),
        f"{(facts.end - facts.begin) / 1e9:,.0f} s on the axis",
        f"{len(facts.partitions):,} partitions",
        f"{acknowledged:,} records acknowledged",
        f"{sum(facts.records_read.values):,} read",
        f"{len(facts.unfinished):,} failed or unknown",
    ]
    return element("p", " · ".join(facts_line), class_="facts")


def _verdict(passed: bool | None, sentence: str, against: Sequence[str]) -> Markup:
    points = [element("li", _short(point)) for point in against]
    kind = {True: "passed", False: "failed", None: "unproved"}[passed]
    return element(
        "section", element("h2", sentence), element("ul", *points) if points else None, class_=f"verdict {kind}"
    )


def _violations(verdict: Verdict, axis: Axis) -> Markup:
    if not verdict.violated:
        return Markup()
    drawn: list[Part] = [element("h2", "Broken promises, and the operations that prove it")]
    for row in sorted(verdict.violated, key=_number_of):
        findings = [each for each in verdict.findings if each.invariant == row.key][:_MOST_VIOLATIONS]
        drawn.append(element("p", element("strong", row.key), " ", PROMISES.get(row.key)))
        drawn += [_finding(each, axis) for each in findings]
        if (more := row.violations - len(findings)) > 0:
            drawn.append(element("p", f"{more:,} more violations of {row.key} are not shown."))
    return together(*drawn)


def _finding(finding: Finding, axis: Axis) -> Markup:
    tp = None if finding.tp is None else str(finding.tp)
    where = ", ".join(filter(None, (tp, axis.seconds(finding.t) if finding.t else None)))
    operations = [_short(operation) for operation in finding.operations[:_MOST_OPERATIONS]]
    if (more := len(finding.operations) - len(operations)) > 0:
        operations.append(f"… and {more:,} more")
    return element(
        "details",
        element("summary", element("span", f"{where}: " if where else "", class_="facts"), _short(finding.says)),
        element("pre", "\n".join(operations)) if operations else None,
        open="",
    )


def _faults(counts: Sequence[RowCount], faults: Sequence[Injection], axis: Axis) -> Markup:
    if not counts:
        return element("p", "No fault was injected.")
    summary = _table(
        ("row", "fault", "#injected", "#bit", "#again", "#void", "#skipped"),
        [
            [
                element("td", each.row, class_="word"),
                element("td", each.name),
                _number(each.injected),
                _number(each.bit),
                _number(each.again, "warning" if each.again else ""),
                _number(each.void, "warning" if each.void else ""),
                _number(each.skipped, "warning" if each.skipped else ""),
            ]
            for each in counts
        ],
    )
    kinds = {"bit": "good", "again": "warning", "void": "warning", "skipped": "warning"}
    rows = [
        [
            element("td", fault.row, class_="word"),
            element("td", element("strong", fault.name), " ", _short(fault.what)),
            *(_moment(at, axis) for at in (fault.t_inject, fault.t_bit, fault.t_heal, fault.t_whole)),
            element("td", _cost(fault), class_="number"),
            element("td", element("span", fault.outcome, class_=kinds[fault.outcome]), " ", _short(fault.why)),
        ]
        for fault in faults[:_MOST_FAULTS]
    ]
    left_out = len(faults) - len(rows)
    return together(
        summary,
        element(
            "details",
            element("summary", f"All {len(faults):,} faults in order"),
            _table(("row", "fault", "#injected", "#noticed", "#healed", "#recovered", "#gap", "outcome"), rows),
            element("p", f"{left_out:,} more faults are not shown.") if left_out else None,
            open="" if len(faults) <= 60 else None,
        ),
    )


def _cost(fault: Injection) -> str:
    """Return the longest unavailability of a partition and the permitted one, if limited, in seconds; a dash without an
    injection.
    """
    if fault.t_inject is None:
        return "–"
    allowed = "" if fault.most_gap_ms is None else f" of {fault.most_gap_ms / 1000:.1f}"
    return f"{fault.longest_gap_ms / 1000:.1f}{allowed} s"


def _invariants(rows: Sequence[Row]) -> Markup:
    kinds = {Status.PASSED: "good", Status.VIOLATED: "bad", Status.NO_DATA: "warning"}
    return _table(
        ("", "promise", "#observations", "#violations", ""),
        [
            [
                element("td", row.key, class_="word"),
                element("td", PROMISES.get(row.key)),
                _number(row.observations),
                _number(row.violations),
                element("td", element("span", row.status, class_=kinds[row.status]), class_="word"),
            ]
            for row in sorted(rows, key=_number_of)
        ],
    )


def _number_of(row: Row) -> int:
    return number_of(row.key)


def _gaps(absent: Sequence[Gap], faults: Sequence[Injection], axis: Axis) -> Markup:
    if not absent:
        return element("p", "There was no gap to report.")
    rows = []
    for gap in absent[:_MOST_GAPS]:
        during = list(dict.fromkeys(f"{fault.row} {fault.name}" for fault in meanwhile(gap, faults)))
        rows.append(
            [
                element("td", str(gap.tp), class_="word"),
                _moment(gap.begin, axis),
                element("td", f"{gap.length_s:.2f} s", class_="number"),
                element("td", _short(", ".join(during)) or "no fault"),
            ]
        )
    left_out = len(absent) - len(rows)
    return together(
        _table(("partition", "#from", "#for", "during"), rows),
        element("p", f"{left_out:,} shorter gaps are not shown.") if left_out else None,
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[Markup]]) -> Markup:
    """Return a table. A heading that begins with # is for a column of numbers, and is shown without the #."""
    cells = [element("th", head.lstrip("#"), class_="number" if head.startswith("#") else None) for head in heads]
    body = [element("tr", *row) for row in rows]
    return element("table", element("thead", element("tr", *cells)), element("tbody", *body))


def _number(number: int, kind: str = "") -> Markup:
    return element("td", f"{number:,}", class_=f"number {kind}".rstrip())


def _moment(at: int | None, axis: Axis) -> Markup:
    return element("td", "–" if at is None else axis.seconds(at), class_="number")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
