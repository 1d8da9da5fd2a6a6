"""The command line: it parses, calls and prints. Nothing heavy is imported before a command runs.

Exit codes: 0 done (also when SIGTERM stopped a run, whose work is saved), 1 a check of `ingot doctor` failed, 2 an
error that the message explains, 130 stopped with Ctrl-C.
"""

from __future__ import annotations


def main() -> None:
    """The entry point of `ingot`: an `IngotError` prints a message, anything else a traceback."""
    from ingot.cli.app import app
    from ingot.cli.problem import explain, show_problem
    from ingot.workspace.errors import IngotError
    from ingot.workspace.output import open_closed_streams

    open_closed_streams()
    try:
        app()
    except IngotError as error:
        show_problem(error)
    except OSError as error:
        explained = explain(error)
        if explained is None:
            raise
        show_problem(explained)
    raise SystemExit(2)
