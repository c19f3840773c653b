"""The commands that documents contain exist, with the options that the documents give them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import click
import pytest

from tests.typed_commands import find, typed_in, understand

ROOT = Path(__file__).parent.parent
DOCUMENTS = {str(path.relative_to(ROOT)): path.read_text() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))}
SCRIPTS = {path.name: path.read_text() for path in (ROOT / "scripts").iterdir() if path.is_file()}
OPTION = r"(?<![\w-])--[a-z][\w-]*"


def mentioned_in(text: str) -> list[str]:
    """Return the commands in the middle of sentences, which may lack what depends on the reader."""
    return re.findall(r"`(tidelog [^`]+)`", text.replace("\n", " "))


TYPED = [(name, command) for name, text in DOCUMENTS.items() for command in typed_in(text)]
MENTIONED = [(name, command) for name, text in DOCUMENTS.items() for command in mentioned_in(text)]


def module_of(script: str) -> str | None:
    """Return the module to which the script passes its arguments, or None if there is no such module."""
    module = re.search(r'-m ([\w.]+) "\$@"$', SCRIPTS[script], re.MULTILINE)
    return module[1] if module else None


#: Prints the help of each module among the arguments, as JSON.
PRINT_HELPS = """
import contextlib, io, json, runpy, sys
helps, modules = {}, sys.argv[1:]
for module in modules:
    sys.argv = [module, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            assert not end.code, (module, end.code)
    helps[module] = printed.getvalue()
print(json.dumps(helps))
"""


@cache
def helps() -> dict[str, str]:
    """Return the help of each module that a script runs. One process prints all, because they import the same files."""
    modules = [module for module in map(module_of, SCRIPTS) if module]
    done = subprocess.run(
        [sys.executable, "-P", "-c", PRINT_HELPS, *modules],
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTHONPYCACHEPREFIX": sys.pycache_prefix or ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    printed: dict[str, str] = json.loads(done.stdout)
    return printed


def options_of(script: str) -> set[str]:
    """Return the options that the script's own help lists, or the script's own code if it has no help."""
    text = SCRIPTS[script]
    if module := module_of(script):
        return set(re.findall(OPTION, helps()[module]))
    if command := re.search(r'^exec (tidelog .*) "\$@"$', text, re.MULTILINE):
        return {"--help", *(option for param in find(command[1])[0].params for option in param.opts)}
    return set(re.findall(rf"== ({OPTION})", text))


def documented_options(script: str) -> set[str]:
    """Return the options that the documents, and the comment at the script's top, give to the script."""
    comment = SCRIPTS[script].split("set -euo")[0]
    lines = [line for text in DOCUMENTS.values() for line in re.findall(rf"scripts/{script}\b(?!-)([^`\n]*)", text)]
    return set(re.findall(OPTION, "\n".join([comment, *lines])))


@pytest.mark.parametrize(("document", "command"), TYPED)
def test_command_to_be_typed_is_understood(
    document: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # `tidelog chaos check` takes the report of the command before it.
    for report in re.findall(r"--report (\w+)", DOCUMENTS[document]):
        (tmp_path / report).mkdir(exist_ok=True)
    understand(command)


@pytest.mark.parametrize(("document", "command"), MENTIONED)
def test_mentioned_command_exists_with_its_options(document: str, command: str) -> None:
    with suppress(click.exceptions.Exit):  # --help, which the parser answers itself
        found, _, words = find(command.partition("…")[0])
        options = {option for param in found.params for option in param.opts}
        assert {word for word in words if word.startswith("--")} <= options, document


def test_documents_contain_commands() -> None:
    assert len(TYPED) > 40
    assert len(MENTIONED) > 80


@pytest.mark.xdist_group("helps of scripts")  # one process reads all of them once
@pytest.mark.parametrize("script", SCRIPTS)
def test_documented_options_of_a_script_exist(script: str) -> None:
    assert documented_options(script) - options_of(script) == set()


def test_scripts_that_documents_name_exist() -> None:
    named = {name for text in DOCUMENTS.values() for name in re.findall(r"(?<![\w/])scripts/([\w-]+)", text)}
    assert len(named) > 8
    assert named <= {path.name for path in (ROOT / "scripts").iterdir()}
