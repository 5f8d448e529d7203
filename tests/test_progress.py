"""Progress is drawn where somebody watches and the work takes a while, and nowhere else."""

import io
import sys

import pytest

from gwi import GWIRegressor, _progress
from gwi._progress import is_watched, progress, silent
from waves import wave


class Terminal(io.StringIO):
    def isatty(self):
        return True


def watched(monkeypatch):
    """A terminal as error stream; for the body of a test, since pytest sets streams anew before it."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm-256color")
    return stream


def test_a_pipe_is_not_watched_and_a_terminal_is(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not is_watched()
    with progress("late") as report:
        assert report is silent
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert is_watched()


def test_a_notebook_is_watched(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    assert is_watched()


def test_short_work_draws_nothing(monkeypatch):
    terminal = watched(monkeypatch)
    with progress("late") as report:
        report("prior", 0.5)
        report("network", 1.0)
    assert terminal.getvalue() == ""


def test_long_work_draws_the_stage_it_is_at_and_leaves_nothing(monkeypatch):
    terminal = watched(monkeypatch)
    monkeypatch.setattr(_progress, "LATE_AFTER", 0.0)
    with progress("late") as report:
        report("prior", 0.5)
        report("network", 0.1)
    drawn = terminal.getvalue()
    assert "network" in drawn
    # The last thing is to erase the lines.
    assert "\x1b[2K" in drawn


def test_work_that_fails_leaves_the_terminal_as_it_was(monkeypatch):
    terminal = watched(monkeypatch)
    monkeypatch.setattr(_progress, "LATE_AFTER", 0.0)

    def fails():
        with progress("late") as report:
            report("prior", 0.5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert terminal.getvalue().count("\x1b[?25h") >= 1


@pytest.mark.parametrize(("verbose", "draws"), [(0, False), (1, True), ("auto", False)])
def test_a_fit_says_as_much_as_it_is_asked_to(monkeypatch, verbose, draws):
    terminal, out = watched(monkeypatch), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    GWIRegressor("linear", verbose=verbose, random_state=0).fit(*wave(40))
    assert bool(terminal.getvalue()) == draws
    assert bool(out.getvalue()) == draws
