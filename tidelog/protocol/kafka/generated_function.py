"""Write the source of a function line by line, and compile it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class GeneratedFunction:
    """The source of one function, and its constants: the values that the source uses by name.

    signature   the function's name and parameters
    file        what a traceback shows as the function's file
    """

    def __init__(self, signature: str, file: str, constants: dict[str, Any]) -> None:
        self._signature = signature
        self._file = file
        self._constants = dict(constants)
        self._lines: list[str] = []
        self._indent = 1
        self._names = 0

    def add(self, line: str) -> None:
        self._lines.append("    " * self._indent + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add the head of a block, and indent the lines that are added in this context."""
        self.add(head)
        self._indent += 1
        yield
        self._indent -= 1

    def name(self, prefix: str) -> str:
        """Return a name that the function does not have yet."""
        self._names += 1
        return f"{prefix}_{self._names}"

    def constant(self, prefix: str, value: Any) -> str:
        """Return a new name of this value."""
        name = self.name(prefix)
        self._constants[name] = value
        return name

    def compiled(self) -> Any:
        """Return the function."""
        source = "\n".join([f"def {self._signature}:", *(self._lines or ["    pass"]), ""])
        exec(compile(source, self._file, "exec"), self._constants)
        return self._constants[self._signature.partition("(")[0]]
