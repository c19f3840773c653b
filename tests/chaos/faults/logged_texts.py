"""The texts that modules can log, read from their source."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from itertools import product
from types import ModuleType
from typing import Any


def logged_texts(modules: Iterable[Any], *, error: str) -> list[str]:
    """Return the texts of the modules' log calls and errors, with 7 for each number and `error` for each other value.

    If there are two modules, each text of an error in the first one also replaces each value in the second one's texts.
    """
    texts = [list(_texts(module)) for module in modules]
    if len(texts) == 1:
        return [text.replace("%s", error) for text in texts[0]]
    inner, outer = texts
    return [text.replace("%s", cause) for cause, text in product(inner, outer) if "%s" in text]


def _texts(module: ModuleType) -> Iterator[str]:
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.replace("%d", "7")
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in node.values)
