"""The language of the code: the field's terms, docstrings with a subject, and names of a bounded length."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
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

pytestmark = pytest.mark.xdist_group("language")  # one process parses all files once


@pytest.fixture(scope="module", autouse=True)
def free_parsed_files() -> Iterator[None]:
    """Forget the parsed files at the end, because each visit of the garbage collector to them takes seconds."""
    yield
    parsed.cache_clear()


@cache
def sources(*packages: str) -> tuple[Path, ...]:
    return tuple(path for package in packages for path in sorted((ROOT / package).rglob("*.py")))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


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


@pytest.mark.parametrize("package", PACKAGES)
def test_identifiers_use_no_coined_word(package: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sources(package)
        for name, line in identifiers(parsed(path))
        if set(words_of(name)) & set(COINED)
    }
    assert sorted(found) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_use_no_coined_word(package: str) -> None:
    coined = re.compile(rf"\b({'|'.join(COINED)})\b", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{line}: {hit[0]}"
        for path in sources(package)
        for text, line, _ in docstrings(parsed(path))
        if path != Path(__file__) and (hit := coined.search(text))
    ]
    assert found == []


@pytest.mark.parametrize("package", PRODUCTION)
def test_public_docstrings_begin_with_a_verb_or_a_subject(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in sources(package)
        for text, line, is_public in docstrings(parsed(path))
        if is_public and text.split()[0].strip(",.:;") in NO_SUBJECT
    ]
    assert found == []


def test_code_and_documents_name_their_subjects() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {hit[0]}"
        for path in (*sources(*PACKAGES), *documents)
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for hit in UNNAMED.finditer(line)
    ]
    assert len(found) <= MOST_UNNAMED, found


def test_names_of_tests_are_short() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in sources("tests")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and len(node.name) > LONGEST_TEST_NAME
    ]
    assert found == []


def test_subjects_of_commits_name_their_area() -> None:
    history = ["git", "-C", str(ROOT), "log", "--no-merges", "--format=%s", f"{FIRST_COMMIT_WITH_RULES}..HEAD"]
    shown = subprocess.run(history, capture_output=True, text=True, check=False)
    if shown.returncode:
        pytest.skip("this tree has no history")
    wrong = [each for each in shown.stdout.splitlines() if not SUBJECT.match(each) or len(each) > LONGEST_SUBJECT]
    assert wrong == []
