"""Measures how much memory and CPU time the listener for clients adds to a broker without clients.

A new process imports all modules of a broker but those of Kafka's protocol, and then these. Modules of the protocol
that other parts import, for example the fetch sessions, are not part of the figures. Neither is code for a message,
which is compiled when a client first sends the message.
"""

from __future__ import annotations

import gc
import importlib
import os
import statistics
import sys
import time
from collections.abc import Iterable

from tools.bench import machine
from tools.bench.command_output import output_of
from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.results import Figure

_TURNS = 9
_OF_KAFKA = ("node.kafka", "tidelog.protocol.kafka")
#: These modules import those of Kafka's protocol, because they put a broker together.
_ABOVE = ("node.process.broker", "node.process.main")
_LISTENER = ("node.kafka.listener", "node.kafka.translation.apis")

_MEMORY = Figure("kafka-listener.memory", "memory that the listener for clients adds to an idle broker", "MB", "≤ 5")
_CPU = Figure("kafka-listener.cpu", "CPU time that it adds to a broker's start", "s", "≤ 0.1")


def measure(env: BenchEnvironment) -> dict[str, float]:
    modules = _output("import node.process.main, sys; print(*sys.modules)").split()
    others = [each for each in modules if each.startswith(("node.", "cluster.", "storage.", "tidelog."))]
    others = [each for each in others if not each.startswith((*_OF_KAFKA, *_ABOVE))]
    program = f"from {__name__} import print_cost; print_cost({others!r})"
    costs = [[float(each) for each in _output(program).split()] for _ in range(_TURNS)]
    memory_mb, cpu_s = (statistics.median(each) for each in zip(*costs, strict=True))
    return {_MEMORY.key: memory_mb, _CPU.key: cpu_s}


def print_cost(others: Iterable[str]) -> None:
    """Import these modules and then the listener, and print the MB and the seconds of CPU that the listener took."""
    _import(others)
    gc.collect()
    memory_mb, begun_s = machine.resident_mb(os.getpid()), time.process_time()
    _import(_LISTENER)
    cpu_s = time.process_time() - begun_s
    gc.collect()
    print(machine.resident_mb(os.getpid()) - memory_mb, cpu_s)


def _import(modules: Iterable[str]) -> None:
    for each in modules:
        importlib.import_module(each)


def _output(program: str) -> str:
    return output_of([sys.executable, "-P", "-c", program], "a new process")


BENCHMARK = Benchmark("kafka-listener", f"imports in a new process, median of {_TURNS}", (_MEMORY, _CPU), measure)
