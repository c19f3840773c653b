"""Collaborators are passed at construction, or by a method that says so, and never assigned from outside.

A reader of a class then sees in its constructor, and in its methods, which other objects the class calls.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("tidelog", "storage", "cluster", "node", "verify", "tools", "scripts")
ADDING = ("append", "add", "insert", "extend", "remove")
KINDS = (ast.Call, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Assign, ast.AnnAssign)
#: The types of the values in a node that contain no node of these kinds.
LEAVES = {ast.Name, ast.Constant, ast.Load, ast.Store, str, int, bool, type(None)}

#: Assignments to objects of other projects, which offer no other way.
ALLOWED = {
    ("tidelog/cli/program.py", "warnings.showwarning"),
    ("verify/simulation/seeds.py", "sys.unraisablehook"),
    ("cluster/zookeeper/kazoo_store.py", "connection._invoke"),
}


@dataclass
class Source:
    """The parts of one file that assign collaborators, or that say which names are collaborators.

    A source keeps no whole tree, because the garbage collector would visit all nodes of all files again and again.

    aliases      the names of types that stand for functions: `Watch = Callable[[float, str], object]`
    classes      the names of classes that are not plain values
    functions    the names of functions inside of classes, at all depths
    values       the names of properties, and of attributes to which a constant or an object is assigned
    annotated    the annotated names inside of classes, with their types
    assigned     each target and value of the assignments to attributes of other objects
    added        each call of a method in ADDING of an attribute of another object, with this attribute
    """

    aliases: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    values: set[str] = field(default_factory=set)
    annotated: list[tuple[str, ast.expr]] = field(default_factory=list)
    assigned: list[tuple[ast.expr, ast.expr]] = field(default_factory=list)
    added: list[tuple[ast.expr, ast.Call]] = field(default_factory=list)

    @classmethod
    def read(cls, text: str) -> Source:
        tree, source = ast.parse(text), cls()
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Callable["):
                source.aliases |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        for node, in_class in nodes_of(tree):
            match node:
                case ast.Call(func=ast.Attribute(value=holder, attr=method)) if method in ADDING:
                    if belongs_to_another(holder):
                        source.added.append((holder, node))
                case ast.ClassDef():
                    source._keep_class(node)
                case ast.Assign() | ast.AnnAssign():
                    source.assigned += (pair for pair in pairs_of(node) if belongs_to_another(pair[0]))
            if in_class:
                source._keep_member(node)
        return source

    def _keep_class(self, node: ast.ClassDef) -> None:
        decorators = {ast.unparse(each).partition("(")[0] for each in node.decorator_list}
        bases = {ast.unparse(each).partition("[")[0] for each in node.bases}
        if not decorators & {"dataclass", "frozen"} and bases <= {"Protocol", "Generic"}:
            self.classes.add(node.name)

    def _keep_member(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                kinds = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
                (self.values if kinds & {"property", "cached_property"} else self.functions).add(name)
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=annotation):
                self.annotated.append((name, annotation))
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Constant() | ast.Call()):
                self.values.add(name)


def nodes_of(tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """Yield each node of the kinds in KINDS, and whether a class contains it.

    `ast.walk` takes twice as long, because it also visits contexts, operators, names and constants.
    """
    todo: list[tuple[ast.AST, bool]] = [(tree, False)]
    while todo:
        node, in_class = todo.pop()
        if isinstance(node, KINDS):
            yield node, in_class
            in_class = in_class or isinstance(node, ast.ClassDef)
        for value in vars(node).values():
            if type(value) is list:
                todo += [(each, in_class) for each in value if type(each) not in LEAVES]
            elif type(value) not in LEAVES:
                todo.append((value, in_class))


@cache
def sources() -> dict[str, Source]:
    """Return the files of the packages by their paths."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): Source.read(path.read_text()) for path in paths}


@cache
def members() -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that are only methods or fields with functions, and the classes that are not plain values."""
    functions, values, classes, aliases = set[str](), set[str](), set[str](), set[str]()
    for source in sources().values():
        functions |= source.functions
        values |= source.values
        classes |= source.classes
        aliases |= source.aliases
    for source in sources().values():
        for name, annotation in source.annotated:
            kind = ast.unparse(annotation).removesuffix(" | None")
            (functions if kind.startswith("Callable[") or kind in aliases else values).add(name)
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


def wired_from_outside(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the line and the attribute of each collaborator that is assigned or added to another object."""
    functions, _ = members()
    for target, value in source.assigned:
        if is_collaborator(value) or (isinstance(target, ast.Attribute) and target.attr in functions):
            yield target.lineno, ast.unparse(target)
    for holder, call in source.added:
        if any(map(is_function, call.args)):
            yield call.lineno, ast.unparse(holder)


def test_no_collaborator_is_assigned_from_outside() -> None:
    found = [
        f"{path}:{line}: {attribute}"
        for path, source in sources().items()
        for line, attribute in wired_from_outside(source)
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
    assert len(list(wired_from_outside(Source.read(line)))) == 1


@pytest.mark.parametrize(
    "line",
    ["self._role_changed = role_changed", "batch.attempts = 1", "self._wakers.append(wake)", "a.b = PartitionState(1)"],
)
def test_guard_accepts_construction_and_state(line: str) -> None:
    assert list(wired_from_outside(Source.read(line))) == []
