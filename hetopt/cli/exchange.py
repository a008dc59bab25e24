"""The commands between other tools and ours: `import`, `assemble` and `export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import hetopt

from ..errors import Unsupported
from . import output
from .options import (
    AsJson,
    OutTree,
    PlanFile,
    PlanInstance,
    arg,
    flag,
    opt,
    pairs,
    sizes,
)
from .quantities import length

if TYPE_CHECKING:
    from ..api.exchange import Assembled
    from ..formats.importing import Imported


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
    found = hetopt.import_file(format, files, instance=instance, options=options)
    found.write(out)
    _tell(found, out, as_json=as_json)


def _tell(found: "Imported | Assembled", out: Path, *, as_json: bool) -> None:
    """Say where a document was written, what was assumed in it, and what changes it."""
    if as_json:
        output.print_json({"written": str(out), **found.to_json()})
        return
    output.tell(f"written to {out}")
    if found.assumed:
        output.show(found.sheet(), stderr=True)


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

    output.check_writable(out)
    importing.check(out)
    found = hetopt.assemble(
        config,
        hosts,
        global_batch=global_batch,
        sequence_length=sequence_length,
        format=format,
        micro_batches=sizes(micro_batches),
        islands=island or (),
        name=name,
        times=times,
        options=option,
    )
    found.write(out)
    _tell(found, out, as_json=as_json)


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
    if explain:
        found = hetopt.runners(plan, instance)
        output.present(found, as_json=as_json)
        return
    if to is None or out is None:
        raise Unsupported("expected --to FORMAT and --out DIR, or --explain; give them")
    paths = hetopt.export(plan, to, out, instance=instance, options=option)
    if as_json:
        output.print_json({"target": to, "files": [str(path) for path in paths]})
    else:
        output.tell(f"written to {', '.join(map(str, paths))}")
