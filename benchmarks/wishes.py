"""What people ask to train, said by the command line, and what it answers.

    python benchmarks/wishes.py [--limit 3] [--only WORD]

Every wish is a model, hosts and options of `hetopt assemble`, and a plan of what that
wrote. Writes results/wishes.md: the wish, the commands, the answer. With 3 s a plan all
of it takes two minutes; `--only` prints the wishes that have the word, and writes none.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from _measuring import publish
from _pages import grid

from hetopt.schema import set_fields

ROOT = Path(__file__).resolve().parent.parent
MODELS = {
    "llama-3-8b": ROOT / "instances/examples/llama-3-8b/config.json",
    "mixtral-8x7b": ROOT / "benchmarks/data/story/mixtral-8x7b/config.json",
}
HEAD = """# Wishes

Made by `python benchmarks/wishes.py`: what a user asks to train, how it is said, what
`hetopt` answers. A wish that is not modelled has the words that it is refused with.
Plans are searched for a few seconds each; times are calibrated ones of 80 GB cards
unless the wish names others; a group of GPUs shares every layer that it holds.
"""
_ASSEMBLE = "hetopt assemble config.json hosts --from hostfile"


class Wish(NamedTuple):
    """What is asked for: hosts are `count x card`, each with eight of them."""

    what: str
    options: str = ""
    hosts: str = "2 x A100-80GB-SXM4"
    model: str = "llama-3-8b"
    sequence: str = "8192"
    costs: dict[str, Any] | None = None  # written into the file by hand


WISHES = (
    Wish("full fine-tuning", "-o finetune=full"),
    Wish("LoRA, rank 16", "-o finetune=lora -o rank=16"),
    Wish("LoRA beside attention alone", "-o finetune=lora -o beside=attention"),
    Wish("QLoRA on 24 GB cards", "-o finetune=qlora -o rank=16", hosts="1 x RTX4090"),
    Wish("FSDP (weights gathered for every micro-batch)", "-o zero=3"),
    Wish("FSDP within a host, replicas across (HSDP)", "-o zero=3 -o zero_groups=2"),
    Wish("context parallel", "-o context_parallel=2", sequence="32Ki"),
    Wish("128k context, Llama-3-8B", sequence="128Ki"),
    Wish("expert parallel, Mixtral", "-o expert_parallel=8", model="mixtral-8x7b"),
    Wish("FP8 products", "-o products=fp8", hosts="2 x H100-80GB-SXM5"),
    Wish("8-bit Adam", "-o optimiser=adamw_8bit"),
    Wish("SGD", "-o optimiser=sgd"),
    Wish("Adafactor", "-o optimiser=adafactor"),
    Wish("Muon", "-o optimiser=muon"),
    Wish("optimiser states on the host", "-o offload=optimiser"),
    Wish("activations on the host", "-o offload=activations -o recompute=none"),
    Wish("MI300X and H200 together", hosts="1 x MI300X, 1 x H200-141GB-SXM5"),
    Wish("B200", hosts="2 x B200-180GB-SXM"),
    Wish("GB200", hosts="2 x GB200-186GB"),
    Wish("L40S, A10G and T4", hosts="1 x L40S, 1 x A10G, 1 x T4"),
    Wish("H20", hosts="2 x H20-96GB-SXM5"),
    Wish("RTX 5090", "-o finetune=lora", hosts="1 x RTX5090"),
    Wish("RTX PRO 6000", "-o finetune=lora", hosts="1 x RTXPRO6000-Blackwell"),
    Wish("TPU v5p", hosts="1 x TPUv5p"),
    Wish("Gaudi 3", hosts="1 x Gaudi3-128GB"),
)  # fmt: skip


def main(words: list[str] | None = None) -> None:
    """Ask for every wish, print what is answered, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=3.0, metavar="S")
    parser.add_argument("--only", metavar="WORD")
    asked = parser.parse_args(words)
    rows = []
    for wish in WISHES:
        if asked.only and asked.only.lower() not in wish.what.lower():
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = (wish.what, *granted(wish, Path(folder), asked.limit))
        print(*row, sep="\n  ", flush=True)
        rows.append(row)
    if not asked.only:
        table = grid(("wish", "said", "answer"), rows)
        page = "\n".join((HEAD, *table, ""))
        publish("wishes.md", page)


def granted(wish: Wish, folder: Path, limit: float) -> tuple[str, str]:
    """How a wish is said, and what is answered."""
    made, plan = folder / "train.yaml", folder / "plan.json"
    said = [f"hosts of {wish.hosts} with 8 GPUs each"]
    words = f"--global-batch 64 --sequence-length {wish.sequence} "
    words += f"-o inter_gbytes_per_s=25 {wish.options}".strip()
    said.append(f"`{_ASSEMBLE} {words} --out train.yaml`")
    hosts = folder / "hosts"
    hosts.write_text("\n".join(listed(wish.hosts)) + "\n", encoding="utf-8")
    command = ["assemble", str(MODELS[wish.model]), str(hosts), "--from", "hostfile"]
    answer = asked_of([*command, *words.split(), "--out", str(made)])
    if "error" in answer:
        return "; ".join(said), answer["error"]["message"]
    if wish.costs:
        tree = yaml.safe_load(made.read_text(encoding="utf-8"))
        set_fields(tree["workload"]["costs"], wish.costs)
        made.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
        said.append(f"`workload.costs: {json.dumps(wish.costs)}`")
    said.append("`hetopt plan train.yaml`")
    told = ["plan", str(made), "--time-limit", str(limit), "--out", str(plan)]
    answer = asked_of(told)
    return "; ".join(said), planned(answer).replace(f"{folder}/", "")


def listed(hosts: str) -> Iterator[str]:
    """Lines of a hostfile."""
    for number, group in enumerate(hosts.split(", ")):
        count, _, card = group.partition(" x ")
        for host in range(int(count)):
            yield f"n{number}-{host} slots=8 type={card}"


def asked_of(words: Sequence[str]) -> dict[str, Any]:
    """The document that a command prints."""
    command = [sys.executable, "-m", "hetopt", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def planned(answer: dict[str, Any]) -> str:
    """Iteration, bound, memory and shape of a plan; or why there is none."""
    if "error" in answer:
        return str(answer["error"]["message"])
    if answer["plan"] is None:
        return f"{answer['status']}: {'; '.join(answer['reasons'])}"
    judged, plan = answer["evaluation"], answer["plan"]
    stages = [stage for pipe in plan["pipelines"] for stage in pipe["stages"]]
    most = max(len(r["gpus"]) for stage in stages for r in stage["replicas"])
    memory = max(judged["peak_memory_mib"].values()) / 1024
    divided = judged["divided"]
    notes = [f"{name} {value}" for name, value in divided.items() if value > 1]
    return ", ".join(
        (
            f"{answer['objective'] / 1e6:.2f} s an iteration",
            f"none under {answer['bound'] / 1e6:.2f} s",
            f"{memory:.1f} GiB of the fullest GPU",
            f"{len(plan['pipelines'])} pipelines of up to "
            f"{max(len(p['stages']) for p in plan['pipelines'])} stages in groups of "
            f"up to {most} GPUs",
            *notes,
        )
    )


if __name__ == "__main__":
    main()
