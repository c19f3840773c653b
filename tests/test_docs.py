"""The documents' statements about the code are compared with the code."""

from __future__ import annotations

import ast
import re
import types
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from node.kafka.translation.extensions import EXTENSION_REQUESTS
from tidelog import errors
from tidelog.frozen_dataclass import version_of
from tidelog.model import Buffer
from tidelog.protocol import (
    admin_messages,
    control_messages,
    group_messages,
    list_offsets_v0_messages,
    messages,
    operator_messages,
    partition_messages,
)
from tidelog.protocol.kafka.extensions import carrier_of
from tidelog.protocol.messages import Message, Request

DOCS = Path(__file__).parent.parent / "docs"

MESSAGES = [
    cls
    for module in (
        messages,
        admin_messages,
        group_messages,
        operator_messages,
        partition_messages,
        list_offsets_v0_messages,
        control_messages,
    )
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Message) and is_dataclass(cls) and cls.__module__ == module.__name__
]
WIRE_ERRORS = errors.BrokerError.__subclasses__()


def type_name(annotation: Any) -> str:
    """Return a field's type as PROTOCOL.md writes it."""
    arguments = get_args(annotation)
    if annotation == Buffer:
        return "records"
    if get_origin(annotation) in (Union, types.UnionType):
        members = [a for a in arguments if a is not types.NoneType]
        return ("records" if set(members) == set(get_args(Buffer)) else type_name(members[0])) + "?"
    if get_origin(annotation) is tuple:
        return f"[{type_name(arguments[0])}]"
    if get_origin(annotation) is dict:
        return f"{{{type_name(arguments[0])}: {type_name(arguments[1])}}}"
    return str(annotation.__name__)


def begins(field: Field[Any]) -> str:
    """Return the words with which PROTOCOL.md marks a field that the first version does not have."""
    version = version_of(field)
    return f" (from version {version} on)" if version else ""


def row(cls: type[Message]) -> str:
    """Return a message's row in PROTOCOL.md."""
    hints = get_type_hints(cls)
    listed = ", ".join(f"{f.name} {type_name(hints[f.name])}{begins(f)}" for f in fields(cls))  # type: ignore[arg-type]
    number = f" ({cls.api})" if issubclass(cls, Request) else ""
    return f"| {cls.__name__}{number} | {listed} |"


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_the_protocol_document_lists_every_message_as_it_is(cls: type[Message]) -> None:
    assert row(cls) in (DOCS / "PROTOCOL.md").read_text().splitlines()


def test_the_protocol_document_lists_every_extension() -> None:
    text = (DOCS / "PROTOCOL.md").read_text().partition("## 5. Extensions")[2].partition("## 6.")[0]
    listed = {
        int(number): name
        for numbers, names in re.findall(r"^\| ([\d, ]+) \| ([\w, ]+) \|", text, re.MULTILINE)
        for number, name in zip(numbers.split(", "), names.split(", "), strict=True)
    }
    assert listed == {carrier_of(cls).api: cls.__name__.removesuffix("Request") for cls in EXTENSION_REQUESTS}


@pytest.mark.parametrize("cls", WIRE_ERRORS, ids=lambda cls: cls.__name__)
def test_the_protocol_document_lists_every_error_code(cls: type[errors.BrokerError]) -> None:
    retriable = "yes" if cls.retriable else "no"
    meaning = (cls.__doc__ or "").split("\n", 1)[0]
    assert f"| {cls.code} | {cls.__name__} | {retriable} | {meaning} |" in (DOCS / "PROTOCOL.md").read_text()


WALK, ARCHITECTURE = ((DOCS / name).read_text() for name in ("WALKTHROUGH.md", "ARCHITECTURE.md"))
#: `file` · `Class.method` or `function`
NAMED_CODE = r"`([\w/]+\.py)` · `([\w.]+)`"
STEPS = sorted(set(re.findall(NAMED_CODE, WALK + ARCHITECTURE)))
RULES = (
    "high watermark",
    "ISR expansion",
    "ISR shrinking",
    "truncation of a follower",
    "fencing of leader epochs",
    "look-up by time",
    "completion of a waiting request",
    "expiry of committed offsets",
    "rebalance of a group",
    "election of a leader",
    "unclean recovery",
)


def test_the_walkthrough_names_many_steps() -> None:
    assert len(re.findall(NAMED_CODE, WALK)) > 30


def test_architecture_says_where_each_rule_is_decided_and_tested() -> None:
    rows = re.findall(rf"^\| ([^|]+) \| {NAMED_CODE} \| `(tests/[\w/]+\.py)` \|$", ARCHITECTURE, re.MULTILINE)
    assert [rule for rule, *_ in rows] == list(RULES)
    assert [tested for *_, tested in rows if not (DOCS.parent / tested).exists()] == []


def test_readme_is_short() -> None:
    assert (DOCS.parent / "README.md").stat().st_size <= 8_192


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{path.relative_to(DOCS.parent)}: {target}"
        for path in (*DOCS.parent.glob("*.md"), *DOCS.rglob("*.md"))
        for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", path.read_text())
        if not (path.parent / target).exists()
    ]
    assert broken == []


def anchors_of(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_name_headings_that_exist() -> None:
    links = [
        (path, path.parent / target if target else path, anchor)
        for path in (*DOCS.parent.glob("*.md"), *DOCS.rglob("*.md"))
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([\w-]+)\)", path.read_text())
    ]
    assert len(links) > 3
    assert [f"{path.name}: #{anchor}" for path, target, anchor in links if anchor not in anchors_of(target)] == []


def test_found_bugs_have_one_short_line_each() -> None:
    lines = (DOCS / "decisions" / "found.md").read_text().splitlines()
    assert sum(line.startswith("- ") for line in lines) > 280
    assert [line for line in lines if line.startswith("- ") and len(line) > 160] == []


@pytest.mark.parametrize(("file", "name"), STEPS, ids=map(" ".join, STEPS))
def test_documents_name_code_that_is_there(file: str, name: str) -> None:
    scope: ast.AST = ast.parse((DOCS.parent / file).read_text())
    for part in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        named = [node for node in ast.walk(scope) if isinstance(node, kinds) and node.name == part]
        assert named, f"{file} has no {name}"
        scope = named[0]


ROOMS = "tidelog|storage|cluster|node|verify|tools|tests|scripts|docs"
READ = [*DOCS.parent.glob("*.md"), *DOCS.rglob("*.md")]
READ += [path for room in ROOMS.split("|") for path in (DOCS.parent / room).rglob("*.py")]


def test_files_that_are_named_exist() -> None:
    named = {
        (path.relative_to(DOCS.parent), name)
        for path in READ
        for name in re.findall(rf"`((?:{ROOMS})/[\w/.-]+)`", path.read_text())
    }
    assert len(named) > 60
    assert [f"{where} names {name}" for where, name in sorted(named) if not (DOCS.parent / name).exists()] == []


def test_tests_that_decisions_name_exist() -> None:
    named = {
        found
        for path in (DOCS / "decisions").glob("*.md")
        for found in re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", path.read_text())
    }
    assert len(named) > 20
    assert [
        f"{file} has no {name}"
        for file, name in sorted(named)
        if f"def {name}(" not in (DOCS.parent / file).read_text()
    ] == []
