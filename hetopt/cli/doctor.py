"""The command `doctor` tries the solvers on this machine on a small problem."""

import typer

import hetopt

from . import output
from .options import AsJson


def doctor(as_json: AsJson = False) -> None:
    """Find the installed solvers, and try each on a small problem.

    Example: `hetopt doctor`
    """
    found = hetopt.doctor()
    output.present(found, as_json=as_json)
    if not all(one.healthy for one in found.backends):
        raise typer.Exit(output.BAD_INPUT)
