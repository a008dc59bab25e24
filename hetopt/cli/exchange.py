"""The commands between other tools and ours, registered by `hetopt.cli`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from ..errors import Unsupported, naming
from ..text.documents import Document
from . import output
from .importing import tell_imported
from .options import AsJson, PlanFile, PlanInstance, arg, flag, opt, pairs
from .quantities import length

if TYPE_CHECKING:
    from ..explaining.timeline import Schedule

_NO_FEATURE = "The plan has no feature that limits where it can run"
OPTION = Annotated[
    list[str] | None,
    pairs(
        "inter_gbytes_per_s, ports, port_gbytes_per_s, intra_gbytes_per_s, "
        "inter_latency_us, nvlinks, efficiency, reserve_mib, gpu, types; precision, "
        "flash, sequence_parallel, recompute (as full,none), zero (as 1,0), "
        "zero_groups, context_parallel, expert_parallel, interleave; runs_on; finetune "
        "(full, lora or qlora), rank, beside; optimiser (adamw, sgd, adafactor, muon, "
        "adamw_8bit), offload (optimiser,activations), host_gbytes_per_s; framework, "
        "style, kernel, products of calibrated times; mtp, parameters of the model."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command()(assemble)
    app.command()(export)
    app.command()(simulate)
    app.command()(doctor)


def assemble(
    config: Annotated[
        Path,
        arg(
            "A Hugging Face config.json, or a model's name in the catalogue.", "CONFIG"
        ),
    ],
    hosts: Annotated[list[Path], arg("Files that list hosts.", "HOSTS...")],
    global_batch: Annotated[int, length("B", "Sequences per iteration.")],
    sequence_length: Annotated[
        int, length("S", "Tokens per sequence, such as 8192 or 128Ki.")
    ],
    out: Annotated[Path, opt("FILE", "Write a .yaml or .json instance.")],
    format: Annotated[
        str,
        opt(
            "FORMAT",
            "hostfile, nvidia_smi, amd_smi, sinfo, kubectl or kuberay; auto recognises "
            "each file, and merges lists of several kinds.",
            "--from",
        ),
    ] = "auto",
    micro_batches: Annotated[
        str, opt("A,B,C", "Micro-batch sizes to choose from.")
    ] = "1",
    name: Annotated[str | None, opt("NAME", "Name of the instance.")] = None,
    option: OPTION = None,
    island: Annotated[
        list[str] | None,
        opt(
            "HOSTS=RATE",
            "Hosts joined by a faster network: `a100-*=400Gb/s`, or with its latency "
            "`a1,a2=25GB/s@5us`; may be repeated.",
        ),
    ] = None,
    times: Annotated[
        str,
        opt(
            "HOW",
            "calibrated: by constants fitted to measured runs, if the catalogue has "
            "every card; analytic: by a fixed share of the peak.",
        ),
    ] = "calibrated",
    as_json: AsJson = False,
) -> None:
    """Make an instance of a model's config.json and a list of hosts.

    You give what the files lack: batch, sequence length, and the bandwidth between
    hosts. For the rest the usual is assumed, and each assumption is listed with the
    option that changes it.

    Example: `hetopt assemble config.json hosts.txt --from hostfile --global-batch 256
    --sequence-length 4096 -o inter_gbytes_per_s=12.5 --out instance.yaml`
    """
    from ..formats import importing
    from ..formats.assembling import Listed, assembly

    output.check_writable(out)
    importing.check(out)
    workload: Document = {
        "sequence_length": sequence_length,
        "global_batch": global_batch,
        "micro_batch_sizes": sizes(micro_batches),
    }
    found = assembly(
        config,
        Listed(format, hosts, islands=island or ()),
        option or [],
        workload,
        name,
        times=times,
    )
    importing.write(out, found.document)
    tell_imported(found, out, as_json=as_json)


def export(
    plan: PlanFile,
    to: Annotated[
        str | None,
        opt(
            "FORMAT", "A target that --explain and `hetopt list formats` show.", "--to"
        ),
    ] = None,
    out: Annotated[Path | None, opt("DIR", "Write the files to this folder.")] = None,
    explain: Annotated[
        bool, flag("Say which targets can run the plan.", "--explain")
    ] = False,
    instance: PlanInstance = None,
    option: Annotated[
        list[str] | None,
        pairs(
            "Further settings of the target. slurm: gres, partition, time, account, "
            "cpus_per_gpu, mem_per_gpu; jobset, kueue: name, queue, restarts; all "
            "schedulers: train, a program in place of hetopt's executor; megatron, "
            "torchtitan: init_from, a folder of Hugging Face weights."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a plan for the tool that runs it; refuse what the tool cannot express.

    Trainers: megatron, megatron_bridge, flagscale, deepspeed, transformers, accelerate,
    llamafactory, torchtitan, hexiscale. Schedulers, which get the
    machines and the plan: slurm, jobset, kueue (Kubernetes), skypilot, ray.
    The executor, `hetopt run`, over hosts: torchrun.

    Example: `hetopt export plan.json --to megatron --out run`
    """
    from .. import api
    from ..formats import exporting

    data, made = api.posed_training(plan, instance)
    if explain:
        with naming(plan):
            rows = exporting.explain(data, made)
        output.give(rows, _able(rows), as_json=as_json)
        return
    if to is None or out is None:
        raise Unsupported("expected --to FORMAT and --out DIR, or --explain; give them")
    with naming(plan):
        texts = exporting.export_plan(to, data, made, option or [])
    paths = exporting.write(out, texts)
    if as_json:
        output.print_json({"target": to, "files": [str(path) for path in paths]})
    else:
        output.tell(f"written to {', '.join(map(str, paths))}")


def simulate(
    plan: PlanFile,
    instance: PlanInstance = None,
    schedule: Annotated[
        str | None,
        opt("1f1b|gpipe", "Schedule; default: the one that the instance names."),
    ] = None,
    out: Annotated[
        Path | None,
        opt("FILE", "Write a page (.html) or a picture (.png, .svg, .pdf)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a plan pass by pass: its time, bubbles and idle time.

    Example: `hetopt simulate plan.json --out timeline.html`
    """
    from .. import api
    from ..explaining import simulator
    from ..report import timeline, writers

    output.check_out(out)
    data, made = api.posed_training(plan, instance)
    with naming(plan):
        found = simulator.simulate(data, made, _schedule(schedule))
    if out is not None and out.suffix.lower() in (".html", *writers.PICTURES):
        timeline.check_size(found)
    document = found.to_json()
    output.present(document, lambda: timeline.sheet(found), out, as_json=as_json)


def doctor(
    as_json: AsJson = False,
) -> None:
    """Find the installed solvers, and try each on a small problem.

    Example: `hetopt doctor`
    """
    from .doctor import findings, report

    found = report(findings())
    output.give(found, _tables(found), as_json=as_json)
    if not all(one["healthy"] for one in found["backends"]):
        raise typer.Exit(output.BAD_INPUT)


def _tables(found: Document) -> Iterator[Any]:
    """The back ends, under what they run on."""
    yield "hetopt {hetopt}, Python {python}, {threads} threads".format(**found)
    headings = ("back end", "version", "verdict")
    rows = (
        (
            one["name"],
            one["version"] or "",
            f"works, {one['seconds']} s" if one["healthy"] else one["reason"],
        )
        for one in found["backends"]
    )
    yield output.table(headings, rows, texts=headings)


def _schedule(word: str | None) -> "Schedule | None":
    if word is None:
        return None
    from ..explaining.timeline import Schedule

    known = get_args(Schedule)
    if word not in known:
        raise Unsupported(f"--schedule {word}: expected one of {', '.join(known)}")
    return cast("Schedule", word)


def _able(rows: list[Document]) -> Iterator[Any]:
    """One row a target, one column a feature of the plan, under a list of these."""
    features = list(rows[0]["features"]) if rows else []
    listed = "; ".join(f"({i}) {name}" for i, name in enumerate(features, 1))
    yield f"The plan has {listed}" if features else _NO_FEATURE
    columns = [f"({i})" for i in range(1, len(features) + 1)]
    cells = []
    for row in rows:
        has = dict(zip(columns, row["features"].values(), strict=True))
        lacking = ", ".join(column for column, each in has.items() if not each)
        told = f"lacks {lacking}" if lacking else "; ".join(row["reasons"])
        if (unsupported := row["unsupported"]) is not None:
            told = f"not supported: {unsupported}"
        marks = ("yes" if each else "NO" for each in has.values())
        releases = f"from {row['oldest']} (tested: {', '.join(row['held_against'])})"
        cells.append((row["name"], releases, *marks, told or "can run it"))
    headings = ("target", "releases", *columns, "verdict")
    yield output.table(headings, cells, texts=headings)


def sizes(words: str) -> list[int]:
    """The sizes of micro-batches that commas separate."""
    try:
        return [int(word) for word in words.split(",")]
    except ValueError:
        raise Unsupported(
            f"--micro-batches {words!r}: expected whole numbers separated by commas"
        ) from None
