"""Tries inputs one after the other until one of them is wrong. Run as `python -m tools.fuzz.worker`.

The process ends with 0 after all inputs, and with `FOUND` when one raised an exception, whose traceback is on standard
error. After a crash the exit status is arbitrary. The process that started it watches for hangs and memory growth.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import importlib.util
import logging
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

FOUND = 70
_LOOKS_UP_EVERY = 1000
COVERAGE, MUTATIONS = "coverage", "mutations"
#: A subdirectory of a run's directory, with the inputs that took new branches, for the next stage.
_FOUND_INPUTS = "found"


def engines() -> list[str]:
    """Return the names of the available engines, the better first.

    COVERAGE needs Atheris (extra `fuzz`), which supports only some Python versions.
    """
    return [COVERAGE, MUTATIONS] if importlib.util.find_spec("atheris") else [MUTATIONS]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.fuzz.worker")
    parser.add_argument("target")
    parser.add_argument("engine", choices=(COVERAGE, MUTATIONS))
    parser.add_argument("cases", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("directory", type=Path)
    chosen = parser.parse_args(arguments)
    faulthandler.enable()
    logging.disable(logging.CRITICAL)  # a log line for each bad input would cost more than everything else
    if chosen.engine == COVERAGE:
        _guided(chosen.target, chosen.cases, chosen.seed, chosen.directory)
    else:
        _mutated(chosen.target, chosen.cases, chosen.seed, chosen.directory)
    return 0


def _trying(target: str, directory: Path) -> Callable[[bytes], None]:
    from tools.fuzz.catalogue import TARGETS
    from tools.fuzz.corpus import MOST_BYTES
    from tools.fuzz.current_input import CurrentInput

    run, current_input, watcher = TARGETS[target].run, CurrentInput(directory / "current_input"), os.getppid()

    def try_one(data: bytes) -> None:
        data = data[:MOST_BYTES]
        current_input.begin(data)
        if not current_input.begun % _LOOKS_UP_EVERY and os.getppid() != watcher:
            os._exit(0)  # the watching process has gone
        try:
            run(data)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(FOUND)

    return try_one


def _mutated(name: str, cases: int, seed: int, directory: Path) -> None:
    from tools.fuzz.catalogue import TARGETS
    from tools.fuzz.corpus import starting_inputs
    from tools.fuzz.mutations import mutations

    target, try_one = TARGETS[name], _trying(name, directory)
    begins = [*starting_inputs(target), *(path.read_bytes() for path in sorted((directory / _FOUND_INPUTS).glob("*")))]
    for data in begins:
        try_one(data)
    for _, data in zip(range(cases - len(begins)), mutations(seed, begins, target.dictionary), strict=False):
        try_one(data)


def _guided(name: str, cases: int, seed: int, directory: Path) -> None:
    atheris = importlib.import_module("atheris")
    # Modules that were imported before the instrumentation have no branches that could guide Atheris.
    with atheris.instrument_imports(include=["tidelog", "storage", "node", "tomllib"], enable_loader_override=False):
        from tools.fuzz.catalogue import TARGETS
        from tools.fuzz.corpus import MOST_BYTES, starting_inputs
    target = TARGETS[name]
    found, begun, words = directory / _FOUND_INPUTS, directory / "begun", directory / "words"
    found.mkdir(exist_ok=True)
    begun.mkdir(exist_ok=True)
    for number, data in enumerate(starting_inputs(target)):
        (begun / f"{number:04}").write_bytes(data)
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.dictionary))
    options: dict[str, object] = {
        "runs": cases,
        "seed": seed or 1,
        "max_len": MOST_BYTES,
        "rss_limit_mb": 0,
        # The watching process detects hangs. Atheris takes 0 for one second.
        "timeout": 1 << 30,
        # libFuzzer must not store wrong inputs in the current directory.
        "artifact_prefix": f"{directory}/",
    }
    if target.dictionary:
        options["dict"] = words
    flags = [f"-{option}={value}" for option, value in options.items()]
    atheris.Setup([sys.argv[0], *flags, str(found), str(begun)], _trying(name, directory))
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    sys.exit(main())
