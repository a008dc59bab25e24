"""The commands between other tools and ours, registered by `hetopt.cli`."""

from pathlib import Path
from typing import Annotated, Any

import typer

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


def _sizes(words: str) -> list[int]:
    from .errors import Unsupported

    try:
        return [int(word) for word in words.split(",")]
    except ValueError:
        raise Unsupported(
            f"--micro-batches {words!r}: expected whole numbers separated by commas"
        ) from None
