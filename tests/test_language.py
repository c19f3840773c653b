"""The language of the code: the field's terms, docstrings with a subject, and names of a bounded length."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("tidelog", "storage", "cluster", "node", "verify", "tools", "scripts", "tests")
PRODUCTION = PACKAGES[:-1]

#: Private words that the code once had for things which have a name in Kafka, ZooKeeper or a textbook. The list has no
#: ordinary English word.
COINED = (
    "absolve",
    "absolved",
    "dice",
    "heir",
    "heirs",
    "oust",
    "parting",
    "partings",
    "reign",
    "reigns",
    "whomever",
)
NO_SUBJECT = ("Who", "Whoever", "What", "Where", "Of", "It", "They", "These", "Nobody", "Somebody")
#: The names of planted bugs, which are parts of a word with hyphens, do not count.
UNNAMED = re.compile(r"(?<!-)\b(somebody|nobody|whoever)\b(?!-)", re.IGNORECASE)
MOST_UNNAMED = 9
LONGEST_TEST_NAME = 70

#: Commits before this one have other subjects.
FIRST_COMMIT_WITH_RULES = "e660736"
SUBJECT = re.compile(r"[a-z0-9][a-z0-9 ,_-]*: \S")
LONGEST_SUBJECT = 72

# A guard parses only the texts in which one of these patterns matches, because parsing all files takes seconds.
# Each pattern matches at least the texts that the guard must reject.
COINED_SOMEWHERE = re.compile(rf"(?:(?<![a-z])|(?=[A-Z]))(?i:{'|'.join(COINED)})(?![a-z])")
NO_SUBJECT_SOMEWHERE = re.compile(rf"""["'](?:\\\n)?[\s,.:;]*(?:{"|".join(NO_SUBJECT)})(?!\w)""")
LONG_NAME_SOMEWHERE = re.compile(rf"def\s+test_\w{{{LONGEST_TEST_NAME + 1 - len('test_')}}}")

pytestmark = pytest.mark.xdist_group("language")  # one process reads all files once


@cache
def sources(package: str) -> dict[str, str]:
    """Return the texts of a package's files by their paths."""
    return {str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / package).rglob("*.py"))}


def contains_any(words: Iterable[str], text: str) -> bool:
    """Return whether the text contains one of the words in any case, because a pattern takes longer to say so."""
    lower = text.lower()
    return any(word in lower for word in words)


@cache
def parsed_if_coined(text: str) -> ast.Module:
    """Return the parsed text, or an empty module if the text contains no coined word."""
    return ast.parse(text if contains_any(COINED, text) and COINED_SOMEWHERE.search(text) else "")


def words_of(identifier: str) -> list[str]:
    """Return the words of an identifier in lower case: take_seat and TakeSeat have take and seat."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", identifier)]


def identifiers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno


def docstrings(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """Yield each docstring with its line, and whether its module, class or function is public."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                name = "" if isinstance(node, ast.Module) else node.name
                yield text, 1 if isinstance(node, ast.Module) else node.lineno, not name.startswith("_")


def coined_identifiers(text: str) -> Iterator[str]:
    for name, line in identifiers(parsed_if_coined(text)):
        if not set(COINED).isdisjoint(words_of(name)):
            yield f"{line}: {name}"


def docstrings_with_coined_words(text: str) -> Iterator[str]:
    coined = re.compile(rf"\b({'|'.join(COINED)})\b", re.IGNORECASE)
    for docstring, line, _ in docstrings(parsed_if_coined(text)):
        if hit := coined.search(docstring):
            yield f"{line}: {hit[0]}"


def public_docstrings_without_a_subject(text: str) -> Iterator[str]:
    if NO_SUBJECT_SOMEWHERE.search(text):
        for docstring, line, is_public in docstrings(ast.parse(text)):
            if is_public and docstring.split()[0].strip(",.:;") in NO_SUBJECT:
                yield f"{line}: {docstring.splitlines()[0]}"


def unnamed_subjects(text: str) -> Iterator[str]:
    if contains_any(("somebody", "nobody", "whoever"), text):
        for number, line in enumerate(text.splitlines(), 1):
            for hit in UNNAMED.finditer(line):
                yield f"{number}: {hit[0]}"


def long_names_of_tests(text: str) -> Iterator[str]:
    if LONG_NAME_SOMEWHERE.search(text):
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                    if len(name) > LONGEST_TEST_NAME:
                        yield f"{node.lineno}: {name}"


def found_in(texts: Mapping[str, str], guard: Callable[[str], Iterable[str]]) -> list[str]:
    return [f"{path}:{found}" for path, text in texts.items() for found in guard(text)]


@pytest.mark.parametrize("package", PACKAGES)
def test_identifiers_use_no_coined_word(package: str) -> None:
    assert found_in(sources(package), coined_identifiers) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_use_no_coined_word(package: str) -> None:
    assert found_in(sources(package), docstrings_with_coined_words) == []


@pytest.mark.parametrize("package", PRODUCTION)
def test_public_docstrings_begin_with_a_verb_or_a_subject(package: str) -> None:
    assert found_in(sources(package), public_docstrings_without_a_subject) == []


def test_code_and_documents_name_their_subjects() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in documents}
    for package in PACKAGES:
        texts |= sources(package)
    del texts[str(Path(__file__).relative_to(ROOT))]
    found = found_in(texts, unnamed_subjects)
    assert len(found) <= MOST_UNNAMED, found


def test_names_of_tests_are_short() -> None:
    assert found_in(sources("tests"), long_names_of_tests) == []


LONG_NAME = f"test_{'x' * (LONGEST_TEST_NAME + 1 - len('test_'))}"


@pytest.mark.parametrize(
    ("guard", "text", "found"),
    [
        (coined_identifiers, "seat = 1\nheir = 1", "2: heir"),
        (coined_identifiers, "x.take_heir2()", "1: take_heir2"),
        (coined_identifiers, "def takeHeir(): ...", "1: takeHeir"),
        (coined_identifiers, "class HEIRLoom: ...", "1: HEIRLoom"),
        (coined_identifiers, "def f(the_HEIR): ...", "1: the_HEIR"),
        (docstrings_with_coined_words, '"""Oust it."""', "1: Oust"),
        (docstrings_with_coined_words, 'class A:\n    """The last HEIRS."""', "1: HEIRS"),
        (public_docstrings_without_a_subject, 'def f():\n    """What is sent."""', "1: What is sent."),
        (public_docstrings_without_a_subject, 'class A:\n    """\n\n    Of these."""', "1: Of these."),
        (public_docstrings_without_a_subject, 'def f():\n    """\\\n  They, too."""', "1: They, too."),
        (public_docstrings_without_a_subject, "def f():\n    r'It: one.'", "1: It: one."),
        (unnamed_subjects, "a broker\nthat Nobody starts", "2: Nobody"),
        (long_names_of_tests, f"class A:\n  async def {LONG_NAME}(): ...", f"2: {LONG_NAME}"),
    ],
)
def test_guard_finds_each_form(guard: Callable[[str], Iterable[str]], text: str, found: str) -> None:
    assert list(guard(text)) == [found]


@pytest.mark.parametrize(
    ("guard", "text"),
    [
        (coined_identifiers, "indices, foreign, THEIR = heirloom, departing, (1, 'heir')"),
        (docstrings_with_coined_words, '"""Return the indices of foreign keys."""\nheir = 1'),
        (public_docstrings_without_a_subject, 'def _f():\n    """What is sent."""\n    return "It"'),
        (unnamed_subjects, "the bug an-epoch-that-nobody-had"),
        (long_names_of_tests, f"def {LONG_NAME[:-1]}(): ..."),
    ],
)
def test_guard_accepts_other_words(guard: Callable[[str], Iterable[str]], text: str) -> None:
    assert list(guard(text)) == []


def test_subjects_of_commits_name_their_area() -> None:
    history = ["git", "-C", str(ROOT), "log", "--no-merges", "--format=%s", f"{FIRST_COMMIT_WITH_RULES}..HEAD"]
    shown = subprocess.run(history, capture_output=True, text=True, check=False)
    if shown.returncode:
        pytest.skip("this tree has no history")
    wrong = [each for each in shown.stdout.splitlines() if not SUBJECT.match(each) or len(each) > LONGEST_SUBJECT]
    assert wrong == []
