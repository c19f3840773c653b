"""Test the content of the report page."""

from __future__ import annotations

import json
import re
from array import array
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.chaos.invented_run import START, InventedRun, at, fault_line, verdict
from tidelog.errors import HistoryError
from tidelog.model import TopicPartition
from verify.chaos.injections import Injection, Outcome
from verify.chaos.report import write_report
from verify.chaos.report.__main__ import main
from verify.chaos.report.facts import Moments, PartitionFacts, RunFacts, Span
from verify.chaos.report.page import page
from verify.chaos.report.promises import PROMISES
from verify.chaos.report.verdict import headline
from verify.chaos.results.verdict import count_rows
from verify.checker.findings import Finding
from verify.checker.verdict import Row, Verdict

STORY = Path(__file__).parent / "report_story.txt"
EVIL = "</script><img src=x onerror=alert(1)>\"'&"
KILLED = Injection("F1", "leader killed", Outcome.BIT, "", "SIGKILL to broker 1", 1, 2, 3)
UNNOTICED = Injection("F1", "leader killed", Outcome.AGAIN, "nothing noticed it", "SIGKILL to broker 2", 1, None, 3)
VOID = Injection("F7", "leader paused", Outcome.VOID, "no effect", "", 1, None, 3)
SKIPPED = Injection("F19", "leader cut off", Outcome.SKIPPED, "needs root")
TP = TopicPartition("t", 0)


def judged(*unread: TopicPartition, **differing: tuple[int, int]) -> Verdict:
    """Return a verdict with these observations and violations; the other invariants passed with ten observations."""
    return Verdict([Row(key, key, *differing.get(key, (10, 0))) for key in PROMISES], [], unread)


class PageTexts(HTMLParser):
    """The visible texts and tooltips of a page, in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self._hidden = self._closer = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._hidden += tag in ("style", "script")
        # the marks of closer zoom levels follow from those of the first
        if tag == "div":
            self._closer = int(dict(attrs).get("data-level") or 0)
        self.texts += [f"({value})".replace("\n", ": ") for name, value in attrs if name == "title" and value]

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("style", "script")

    def handle_data(self, data: str) -> None:
        if data.strip() and not self._hidden and not self._closer:
            self.texts.append(data.strip())


def invented_run(**changed: object) -> InventedRun:
    finding = {
        "invariant": "I1",
        "tp": ["orders", 0],
        "t": at(9),
        "says": "1:42 was acknowledged at offset 42 and is not there",
        "operations": ["client-1 produced 1:42", "broker 2 holds 1:43 at offset 42"],
    }
    faults = [
        fault_line("F1", "leader killed", 5, 8, what="SIGKILL to broker 2", longest_gap_ms=1030.0, most_gap_ms=2500),
        fault_line("F7", "leader paused", 12, 14, t_bit=None, outcome="void", why="no effect"),
        fault_line("F19", "leader cut off", 0, 0, t_inject=None, t_bit=None, t_heal=None, outcome="skipped"),
    ]
    run = InventedRun(seconds=20, partitions=2, rate=20, faults=faults, verdict=verdict(I1=[finding]))
    for name, value in changed.items():
        setattr(run, name, value)
    return run


def test_report_has_exactly_the_expected_texts(tmp_path: Path) -> None:
    """After an intended change of the texts, review the difference and replace the expected file by the new one."""
    html = write_report(invented_run().write(tmp_path)).read_text()
    story = "\n".join(PageTexts(html).texts) + "\n"
    (tmp_path / STORY.name).write_text(story)
    assert story == STORY.read_text(), f"the new story is in {tmp_path / STORY.name}"


def test_names_and_texts_are_escaped_everywhere(tmp_path: Path) -> None:
    evil = fault_line("F1", EVIL, 5, 8, what=EVIL, why=EVIL)
    finding = {"tp": [EVIL, 0], "t": at(9), "says": EVIL, "operations": [EVIL]}
    run = invented_run(topic=EVIL, faults=[evil], verdict=verdict(I2=[finding]))
    run.write(tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({EVIL: EVIL}))
    html = write_report(tmp_path).read_text()
    assert "img" not in PageTexts(html).tags
    assert PageTexts(html).tags.count("script") == 2
    assert "<img" not in html
    assert sum(EVIL in text for text in PageTexts(html).texts) > 10


def test_page_needs_no_other_file(tmp_path: Path) -> None:
    html = write_report(invented_run().write(tmp_path)).read_text()
    assert not {"link", "img", "iframe", "object"} & set(PageTexts(html).tags)
    assert not re.search(r"https?:|url\(|@import|src=|fetch\(|XMLHttp", html)


def test_report_of_a_long_run_stays_below_five_megabytes() -> None:
    facts = RunFacts(START, START + 7_200 * 10**9)
    moves = [at(number) for number in range(7_200)]
    for number in range(150):
        spans = [Span(t, t + 10**8, str(epoch), epoch % 9) for epoch, t in enumerate(moves[number::10])]
        watermarks = Moments.of((t, offset * 1000 + offset % 7) for offset, t in enumerate(moves))
        facts.partitions[TopicPartition("t" * 249, number)] = PartitionFacts(spans, [], watermarks)
    faults = [Injection("F1", "n" * 100, Outcome.BIT, "w" * 5000, "x" * 5000, t, t, t + 5) for t in moves[::3]]
    findings = [Finding(key, TP, START, "s" * 5000, ["o" * 5000] * 100) for key in PROMISES for _ in range(100)]
    html = page("long", facts, faults, Verdict([Row(key, key, 1, 10**6) for key in PROMISES], findings))
    assert len(html.encode()) < 5 << 20
    assert "86 more partitions with fewer events or without records are not drawn" in html
    assert "999,990 more violations of I1 are not shown." in html


def test_partitions_without_records_displace_no_others_in_the_report() -> None:
    facts = RunFacts(START, START + 10**10)
    elections = [Span(at(number), at(number + 1), str(number), 1) for number in range(5)]
    for number in range(100):
        facts.partitions[TopicPartition("idle", number)] = PartitionFacts(elections)
    facts.partitions[TopicPartition("orders", 7)] = PartitionFacts(elections[:1], acknowledged=array("q", [at(1)]))
    facts.partitions[TopicPartition("__consumer_offsets", 3)] = PartitionFacts(elections[:1])
    html = page("idle", facts, [], None)
    assert "orders-7" in html and "__consumer_offsets-3" in html
    assert "38 more partitions with fewer events or without records are not drawn" in html


@pytest.mark.parametrize(
    ("verdict_", "faults", "passed", "says"),
    [
        (judged(), [KILLED], True, "Passed: 1 fault hit the cluster, and every promise was kept."),
        (None, [KILLED], None, "There is no verdict"),
        (judged(I1=(10, 2)), [KILLED], False, "Failed: a promise was broken"),
        (judged(I1=(0, 0)), [KILLED], None, "Not proved"),
        (judged(TP), [KILLED], None, "Not proved"),
        (judged(), [KILLED, VOID], None, "Not proved"),
        (judged(), [UNNOTICED, KILLED], True, "Passed: 1 fault hit the cluster, and every promise was kept."),
        (judged(), [UNNOTICED], None, "Not proved"),
        (judged(I19=(10, 1)), [UNNOTICED, KILLED], False, "Failed: a promise was broken"),
        (judged(), [KILLED, SKIPPED], None, "Not proved"),
    ],
)
def test_only_a_complete_run_has_passed(
    verdict_: Verdict | None, faults: list[Injection], passed: bool | None, says: str
) -> None:
    found, sentence, _ = headline(verdict_, count_rows([*{fault.row for fault in faults}], faults))
    assert (found, sentence.startswith(says)) == (passed, True)


def test_page_shows_an_attempt_and_its_repeat() -> None:
    texts = PageTexts(page("repeated", RunFacts(0, 9), [UNNOTICED, KILLED], judged())).texts
    assert "Passed: 1 fault hit the cluster, and every promise was kept." in texts
    assert "(F1 leader killed (again), 0.00 s – 0.00 s: SIGKILL to broker 2)" in texts
    heads = texts.index("injected")
    assert texts[heads : heads + 12] == [
        *("injected", "bit", "again", "void", "skipped"),
        *("F1", "leader killed", "2", "1", "1", "0", "0"),
    ]
    assert texts[texts.index("again", heads + 12) :][:2] == ["again", "nothing noticed it"]


def test_page_shows_an_attempt_without_its_repeat_as_void() -> None:
    texts = PageTexts(page("stopped", RunFacts(0, 9), [UNNOTICED], judged())).texts
    assert "(F1 leader killed (void), 0.00 s – 0.00 s: SIGKILL to broker 2)" in texts
    assert texts[texts.index("nothing noticed it") - 1] == "void"


def test_reasons_against_a_run_are_listed() -> None:
    counts = count_rows(["F1", "F7", "F19", "F20"], [KILLED, VOID, SKIPPED])
    _, _, against = headline(judged(TP, I1=(9, 1), I17=(0, 0)), counts, ["the disk was full"])
    assert against == [
        "I1 is broken: 1 violation",
        "the disk was full",
        "void, so these faults prove nothing: F7",
        "skipped, because they cannot be injected here: F19",
        "not reached: F20",
        "without data, so these invariants have not passed: I17",
        "without all final logs, so the final state of these partitions is unknown: t-0",
    ]


def test_unreached_rows_and_own_troubles_are_listed(tmp_path: Path) -> None:
    run = invented_run(verdict=verdict(), faults=[]).write(tmp_path)
    (run / "run.json").write_text('{"seed": 3, "rows": ["F1", "F50"], "troubles": ["replicas were not level"]}')
    shown = PageTexts(write_report(run).read_text()).texts
    assert "not reached: F1, F50" in shown
    assert "replicas were not level" in shown
    assert any("not proved" in text for text in shown)


def test_unreadable_history_is_listed_and_the_rest_is_drawn(tmp_path: Path) -> None:
    run = invented_run().write(tmp_path)
    with (run / "histories" / "2.jsonl").open("a") as file:
        file.write('{"e":"hw"}\n')
    html = write_report(run).read_text()
    assert "2.jsonl:" in html
    assert "orders-1" in html


def test_empty_run_has_a_page_that_says_so(tmp_path: Path) -> None:
    html = write_report(tmp_path).read_text()
    assert "There is no verdict" in html
    assert "no history found in" in html


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("faults.jsonl", '{"row":"F1"}\n'),
        ("faults.jsonl", '{"row":"F1","name":"n","outcome":"perhaps"}\n'),
        ("faults.jsonl", '{"row":"F1","name":"n","outcome":"bit","t_inject":"noon"}\n'),
        ("faults.jsonl", '{"row":"first","name":"n","outcome":"bit"}\n'),
        ("run.json", '{"rows":["first"]}'),
        ("verdict.json", "{}"),
        ("verdict.json", "[1]"),
        ("run.json", "[1]"),
    ],
)
def test_invalid_file_raises_an_error_with_its_name(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(HistoryError, match=name):
        write_report(tmp_path)


def test_report_can_be_written_again_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
    (tmp_path / "verdict.json").write_text("{")
    assert main([str(tmp_path)]) == 1
    assert "verdict.json" in capsys.readouterr().err
    assert main([]) == 2
