"""The ports of local processes, which are chosen once."""

from __future__ import annotations

from contextlib import ExitStack

from tidelog.local.processes.ports import choose_port, port_is_free


def test_preferred_port_is_chosen_if_it_is_free() -> None:
    with ExitStack() as held:
        free = choose_port(held)
    with ExitStack() as held:
        assert choose_port(held, preferred=free) == free


def test_another_port_is_chosen_if_the_preferred_one_is_taken() -> None:
    with ExitStack() as held:
        taken = choose_port(held)
        assert choose_port(held, preferred=taken) != taken
    with ExitStack() as held:
        assert choose_port(held, {taken}, preferred=taken) != taken


def test_port_zero_means_any_port() -> None:
    with ExitStack() as held:
        chosen = choose_port(held, preferred=0)
        assert chosen > 0 and port_is_free(chosen)
