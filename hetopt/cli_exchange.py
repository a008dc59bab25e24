"""The commands between other tools and ours, registered by `hetopt.cli`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .errors import Unsupported

OPTION = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="inter_gbytes_per_s, intra_gbytes_per_s, inter_latency_us, efficiency, "
        "gpu, types.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(assemble)
    app.command()(export)


def assemble(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="A Hugging Face config.json.")
    ],
    hosts: Annotated[
        list[Path], typer.Argument(metavar="HOSTS...", help="Files that list hosts.")
    ],
    format: Annotated[
        str,
        typer.Option("--from", metavar="FORMAT", help="hostfile, nvidia_smi or sinfo."),
    ],
    global_batch: Annotated[
        int, typer.Option(min=1, metavar="B", help="Sequences of an iteration.")
    ],
    sequence_length: Annotated[
        int, typer.Option(min=1, metavar="S", help="Tokens of a sequence.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Write a .yaml or .json instance.")
    ],
    micro_batches: Annotated[
        str,
        typer.Option(metavar="A,B,C", help="Sizes of micro-batches to choose from."),
    ] = "1",
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the instance.")
    ] = None,
    option: OPTION = None,
) -> None:
    """Make an instance of a model's config.json and a list of hosts.

    What the files do not tell is asked for, never guessed: batch, sequence length,
    and the bandwidth between hosts.

    Example: `hetopt assemble config.json hosts.txt --from hostfile --global-batch 256
    --sequence-length 4096 -o inter_gbytes_per_s=12.5 --out instance.yaml`
    """
    from . import cli, importing
    from .assembling import assembled

    cli._writable(out)
    importing.check(out)
    workload: dict[str, Any] = {
        "sequence_length": sequence_length,
        "global_batch": global_batch,
        "micro_batch_sizes": _sizes(micro_batches),
    }
    importing.write(out, assembled(config, format, hosts, option or [], workload, name))
    cli._tell(f"written to {out}")


def export(
    plan: Annotated[str, typer.Argument(help="A plan file, or a result document.")],
    to: Annotated[
        str | None, typer.Option("--to", metavar="FORMAT", help="megatron, flagscale.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the files here.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say which target can run the plan.")
    ] = False,
    instance: Annotated[
        str | None,
        typer.Option(metavar="INSTANCE", help="The plan's instance, if not its own."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")
    ] = False,
) -> None:
    """Write a plan for the tool that runs it; refuse what the tool cannot express.

    Example: `hetopt export plan.json --to megatron --out run`
    """
    from . import api, cli, exporting
    from .plans import TrainingPlan

    name, data, made = api.posed_plan(plan, instance)
    if not isinstance(made, TrainingPlan):
        raise Unsupported(f"{plan}: found a plan of {name}, expected a training plan")
    if explain:
        rows = exporting.explained(data, made)
        if as_json:
            cli._print_json(rows)
        else:
            cli._show([_table(rows)])
        return
    if to is None or out is None:
        raise Unsupported("expected --to FORMAT and --out DIR, or --explain; give them")
    paths = exporting.write(out, exporting.exported(to, data, made))
    if as_json:
        cli._print_json({"target": to, "files": [str(path) for path in paths]})
    else:
        cli._tell(f"written to {', '.join(map(str, paths))}")


def _table(rows: list[dict[str, Any]]) -> Any:
    """Targets beside what the plan asks of them."""
    from rich.table import Table

    table = Table("the plan has", *(row["name"] for row in rows))
    for feature in rows[0]["features"] if rows else ():
        marks = ("yes" if row["features"][feature] else "NO" for row in rows)
        table.add_row(feature, *marks)
    told = ("; ".join(row["reasons"]) or "can run it" for row in rows)
    table.add_row("verdict", *told, end_section=True)
    return table


def _sizes(words: str) -> list[int]:
    try:
        return [int(word) for word in words.split(",")]
    except ValueError:
        raise Unsupported(
            f"--micro-batches {words!r}: expected whole numbers separated by commas"
        ) from None
