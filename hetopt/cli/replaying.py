"""`hetopt recover --trace`, a job along a trace of spot GPUs, for `cli_recover`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import typer

from ..errors import Unsupported
from . import options, output
from .output import written


def refuse(with_what: str, options: Mapping[str, Any]) -> None:
    """`Unsupported` where an option was given that does not go with another."""
    if given := [name for name, value in options.items() if value is not None]:
        expected = "leave it out" if with_what == "--trace" else "add --trace FILE"
        raise Unsupported(f"{given[0]}: found it with {with_what}; {expected}")


def replay(
    trace: Path,
    plan: tuple[str, str],
    *,
    methods: str | None,
    counts: str,
    checkpoint_s: float | None,
    time_limit_s: float | None,
    out: Path | None,
    as_json: bool,
    **choices: Any,
) -> NoReturn:
    """Replay, write, show, and leave with the exit code: 4 where the job never ran."""
    from ..api import replaying
    from ..report import replay as report
    from .progress import Steps
    from .terminal import console

    output.check_writable(out)
    if out is not None:
        report.check(out)
    if counts not in ("share", "as_is"):
        raise Unsupported(
            f"--counts {counts!r}: expected one of share, as_is; correct it"
        )
    listed: tuple[str, ...] = replaying.METHODS
    if methods is not None:
        listed = tuple(options.listed(methods, "--method"))
    with Steps(console(stderr=True), "changes") as bar:
        found = replaying.replay(
            *plan,
            trace,
            counts="as_is" if counts == "as_is" else "share",
            methods=listed,
            checkpoint_s=(
                replaying.CHECKPOINT_S if checkpoint_s is None else checkpoint_s
            ),
            time_limit=(
                replaying.TIME_LIMIT_S if time_limit_s is None else time_limit_s
            ),
            report=bar.report,
            **choices,
        )
    if found.interrupted:
        output.complain("interrupted: this is what was replayed until then")
    failed = written(out, lambda path: report.write(found, path))
    output.give(found.to_json(), report.shown(found), as_json, failed)
    ran = any(one.tally.iterations for one in found.replays)
    raise typer.Exit(output.PLAN if ran else output.NOT_FOUND)
