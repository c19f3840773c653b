"""Collaborators are passed at construction, or by a method that says so, and never assigned from outside.

A reader of a class then sees in its constructor, and in its methods, which other objects the class calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("tidelog", "storage", "cluster", "node", "verify", "tools", "scripts")
ADDING = ("append", "add", "insert", "extend", "remove")

pytestmark = pytest.mark.xdist_group("wiring")  # one process parses all files once

#: Assignments to objects of other projects, which offer no other way.
ALLOWED = {
    ("tidelog/cli/program.py", "warnings.showwarning"),
    ("verify/simulation/seeds.py", "sys.unraisablehook"),
    ("cluster/zookeeper/kazoo_store.py", "connection._invoke"),
}


@pytest.fixture(scope="module", autouse=True)
def free_parsed_files() -> Iterator[None]:
    """Forget the parsed files at the end, because each visit of the garbage collector to them takes seconds."""
    yield
    parsed.cache_clear()


@cache
def parsed() -> dict[str, ast.Module]:
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in paths}


@cache
def aliases() -> frozenset[str]:
    """Return the names of types that stand for functions: `Watch = Callable[[float, str], object]`."""
    return frozenset(
        target.id
        for tree in parsed().values()
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Callable[")
        for target in node.targets
        if isinstance(target, ast.Name)
    )


def is_function_type(annotation: ast.expr) -> bool:
    text = ast.unparse(annotation).removesuffix(" | None")
    return text.startswith("Callable[") or text in aliases()


@cache
def members() -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that are only methods or fields with functions, and the classes that are not plain values."""
    functions, values, classes = set[str](), set[str](), set[str]()
    for tree in parsed().values():
        for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            decorators = {ast.unparse(each).partition("(")[0] for each in owner.decorator_list}
            bases = {ast.unparse(each).partition("[")[0] for each in owner.bases}
            if not decorators & {"dataclass", "frozen"} and bases <= {"Protocol", "Generic"}:
                classes.add(owner.name)
            for node in ast.walk(owner):
                match node:
                    case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                        kinds = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
                        (values if kinds & {"property", "cached_property"} else functions).add(name)
                    case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=annotation):
                        (functions if is_function_type(annotation) else values).add(name)
                    case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Constant() | ast.Call()):
                        values.add(name)
    return frozenset(functions - values), frozenset(classes)


def is_function(value: ast.expr) -> bool:
    functions, _ = members()
    match value:
        case ast.Lambda() | ast.Call(func=ast.Name(id="partial")):
            return True
        case ast.Attribute(attr=name):
            return name in functions
    return False


def is_collaborator(value: ast.expr) -> bool:
    """Return whether the value is a function, a method of an object, or a new object that is not a plain value."""
    _, classes = members()
    return is_function(value) or (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in classes
    )


def belongs_to_another(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and not (
        isinstance(target.value, ast.Name) and target.value.id in ("self", "cls")
    )


def pairs_of(node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        elif node.value is not None:
            yield target, node.value


def wired_from_outside(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the attribute of each collaborator that is assigned or added to another object."""
    functions, _ = members()
    for node in ast.walk(tree):
        match node:
            case ast.Assign() | ast.AnnAssign():
                for target, value in pairs_of(node):
                    wired = is_collaborator(value) or (isinstance(target, ast.Attribute) and target.attr in functions)
                    if wired and belongs_to_another(target):
                        yield node.lineno, ast.unparse(target)
            case ast.Call(func=ast.Attribute(value=holder, attr=method), args=added) if method in ADDING:
                if belongs_to_another(holder) and any(map(is_function, added)):
                    yield node.lineno, ast.unparse(holder)


def test_no_collaborator_is_assigned_from_outside() -> None:
    found = [
        f"{path}:{line}: {attribute}"
        for path, tree in parsed().items()
        for line, attribute in wired_from_outside(tree)
        if (path, attribute) not in ALLOWED
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "replicas.role_changed = self._role_changed",
        "replicas.role_changed = lambda replica: None",
        "self._fetchers.on_storage_error = partial(report, 1)",
        "a.x, client.on_view = 1, lambda view: None",
        "self._client.listeners.append(self._role_changed)",
        "machine.process = ReplicaManager(1)",
    ],
)
def test_guard_finds_each_way_to_wire_from_outside(line: str) -> None:
    assert len(list(wired_from_outside(ast.parse(line)))) == 1


@pytest.mark.parametrize(
    "line",
    ["self._role_changed = role_changed", "batch.attempts = 1", "self._wakers.append(wake)", "a.b = PartitionState(1)"],
)
def test_guard_accepts_construction_and_state(line: str) -> None:
    assert list(wired_from_outside(ast.parse(line))) == []
