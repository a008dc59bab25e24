"""The commands between other tools and ours: `import`, `assemble` and `export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..errors import Unsupported, naming
from ..text.documents import Document
from . import output
from .options import AsJson, OutTree, PlanFile, PlanInstance, arg, flag, opt, pairs
from .quantities import length

if TYPE_CHECKING:
    from ..formats.importing import Imported
    from ..report.sheet import Sheet


_OWN = ("out", "instance", "option", "json", "help")


def import_file(
    format: Annotated[str, arg("One of `hetopt list formats`.", "FORMAT")],
    paths: Annotated[
        list[str] | None,
        arg("Files to read, and options of the format.", "[PATH]... [--NAME VALUE]..."),
    ] = None,
    out: OutTree = None,
    instance: Annotated[
        str | None,
        opt(
            "INSTANCE",
            "Write this instance with what was read; plans are read against it.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None, pairs("An option of the format, like --NAME VALUE.")
    ] = None,
    as_json: Annotated[
        bool,
        flag(
            "Print one JSON document on stdout: what was written and assumed.", "--json"
        ),
    ] = False,
) -> None:
    """Convert another tool's file, such as a price list, to hetopt's format.

    Examples: `hetopt import skypilot vms.csv --region us-east-1
    --instance espresso/llama-7b --out market.yaml`;
    `hetopt import metis-plan search.log --instance i.yaml --rank 2 --out plan.json`
    """
    from ..formats import importing

    files, given = importing.split(format, paths or [], _OWN)
    options = [*given, *(option or [])]
    if out is None:
        raise Unsupported("expected --out FILE; add it")
    output.check_writable(out)
    importing.check(out)
    found = importing.imported(format, files, options, instance)
    importing.write(out, found.document)
    tell_imported(found, out, as_json=as_json)


def tell_imported(found: "Imported", out: Path, *, as_json: bool) -> None:
    """Say where a document was written, what was assumed in it, and what changes it."""
    if as_json:
        output.print_json({"written": str(out), **found.to_json()})
        return
    output.tell(f"written to {out}")
    if found.assumed:
        from ..report.sheet import Section, Sheet, Table

        headings = ("assumed", "value", "source", "change it with")
        cells = ((row.what, row.value, row.source, row.change) for row in found.assumed)
        table = Table.of(headings, cells, texts=headings)
        output.show(Sheet("Assumed", (Section(table=table),)), stderr=True)


OPTION = Annotated[
    list[str] | None,
    pairs(
        "inter_gbytes_per_s, ports, port_gbytes_per_s, intra_gbytes_per_s, "
        "inter_latency_us, nvlinks, efficiency, reserve_mib, gpu, types; precision, "
        "flash, sequence_parallel, recompute (as full,none), zero (as 1,0), "
        "zero_groups, context_parallel, expert_parallel, interleave; runs_on; finetune "
        "(full, lora or qlora), rank, beside; optimiser (adamw, sgd, adafactor, muon, "
        "adamw_8bit), offload (optimiser), host_gbytes_per_s; framework, "
        "style, kernel, products of calibrated times, and where known release (26.02), "
        "site, overlap (tp, experts, untold), dispatcher (alltoall, flexible), loss "
        "(whole, plain, chunked); mtp, parameters of the model; of RL post-training "
        "answers, prompt_tokens, mean_tokens, longest_tokens, staleness."
    ),
]


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
    The executor, `hetopt run`, over hosts: torchrun. RL post-training: verl, nemo_rl.

    Example: `hetopt export plan.json --to megatron --out run`
    """
    from .. import api
    from ..formats import exporting
    from ..text.options import pairs as pairs_of

    if explain:
        data, made = api.posed_training(plan, instance)
        with naming(plan):
            rows = exporting.explain(data, made)
        output.present(rows, lambda: _able(rows), as_json=as_json)
        return
    if to is None or out is None:
        raise Unsupported("expected --to FORMAT and --out DIR, or --explain; give them")
    with naming(plan):
        told = pairs_of(option or [])
        paths = api.export(plan, to, out, instance=instance, options=told)
    if as_json:
        output.print_json({"target": to, "files": [str(path) for path in paths]})
    else:
        output.tell(f"written to {', '.join(map(str, paths))}")


def _able(rows: list[Document]) -> "Sheet":
    """One row a target, one column a feature of the plan, under a list of these."""
    from ..report.sheet import Section, Sheet, Table

    features = list(rows[0]["features"]) if rows else []
    listed = "; ".join(f"({i}) {name}" for i, name in enumerate(features, 1))
    own = listed or "no feature that limits where it can run"
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
    table = Table.of(headings, cells, texts=headings)
    return Sheet("Targets", (Section(table=table),), answer=f"The plan has {own}")


def sizes(words: str) -> list[int]:
    """The sizes of micro-batches that commas separate."""
    try:
        return [int(word) for word in words.split(",")]
    except ValueError:
        raise Unsupported(
            f"--micro-batches {words!r}: expected whole numbers separated by commas"
        ) from None
