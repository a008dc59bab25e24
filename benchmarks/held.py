"""What every target's own tool makes of exports: a page from `pytest -m targets`.

    python benchmarks/held.py [--run] [--only WORD]

`--run` runs the tests of tests/targets, which skip what is not installed and checkouts
that no variable of the environment names (MEGATRON_LM, MEGATRON_BRIDGE,
FLAGSCALE, FLASHFLEX, and CRDS with definitions of Kubernetes), and keeps a line
a test in results/held.jsonl; `--only` takes the test files whose name has the word. The
page, results/held.md, is made from the latest run of each file and from what exporters
refuse now. All of it takes a quarter of an hour on two cores.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from _measuring import RESULTS, publish
from _measuring import commit as of_the_code
from _pages import grid

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests" / "oracles"))

from exporter_plans import (  # noqa: E402
    MIXED,
    UNEVEN,
    asymmetric,
    even_for,
    instance,
    instance_for,
)

from hetopt.formats import exporting  # noqa: E402
from hetopt.schema import Instance  # noqa: E402

HELD = {name: exporting.target_named(name).held for name in exporting.names()}
LINES, PAGE = "held.jsonl", "held.md"
TESTS = ROOT / "tests" / "targets"
#: Where the environment names the checkout of a tool.
CHECKOUTS = {
    "megatron": "MEGATRON_LM",
    "megatron_bridge": "MEGATRON_BRIDGE",
    "flagscale": "FLAGSCALE",
    "hexiscale": "FLASHFLEX",
}
#: What no test can show on such a machine, and what it would take.
NOT_HERE = {
    "accelerate": "`accelerate launch` over several hosts; training on GPUs",
    "deepspeed": "training on GPUs; its launcher over several hosts",
    "flagscale": "training: its Megatron wants CUDA and Transformer Engine",
    "hexiscale": "training: its models are made of flash-attn",
    "jobset": "admission and scheduling: there is no API server",
    "kueue": "admission and scheduling: there is no API server",
    "llamafactory": "training: it wants more packages than its own; GPUs",
    "megatron": "`pretrain_gpt.py` itself, and speed: they want CUDA",
    "megatron_bridge": "its recipes: their modules want CUDA to be imported",
    "ray": "GPUs: the raylets' are of the name alone",
    "skypilot": "`sky launch`: it wants an account of a cloud",
    "slurm": "accounting and limits of a real cluster",
    "torchrun": "GPUs of several hosts: see executor.md for one host's",
    "torchtitan": "its `Trainer`, and speed: they want CUDA",
    "transformers": "training on GPUs; weights of four and eight bits",
}
#: What was wrong when exports were first held to the tools, and the tests that look.
FINDINGS = (
    ("megatron", "a Llama was written as a model with learned positions and biases",
     "test_parameters_are_those_that_the_plan_was_judged_with"),
    ("megatron", "bf16 was asked of cards that have none", ""),
    ("torchtitan", "every plan of several stages was refused",
     "test_stages_and_parameters_are_those_of_the_plan"),
    ("torchtitan", "full recomputation became selective",
     "test_stages_and_parameters_are_those_of_the_plan"),
    ("deepspeed", "the order of GPUs was not kept",
     "test_hosts_and_gpus_are_read_as_they_are_written"),
    ("deepspeed", "a run of two steps did not end",
     "test_two_steps_lose_alike_on_all_ranks_and_end"),
    ("flagscale", "norms, positions and biases were not told",
     "test_norms_positions_and_biases_are_told"),
    ("hexiscale", "models that it does not have were taken", ""),
    ("ray", "without labels it waited for ever", "test_nodes_without_labels_are_told"),
    ("ray", "the words of `hetopt run` did not reach its workers",
     "test_every_node_gets_its_gpus_and_the_plan"),
    ("slurm", "GPUs were asked for by names that it does not have",
     "test_slurm_accepts_the_names_of_its_own_list"),
    ("slurm", "ranks took GPUs of other jobs",
     "test_ranks_get_the_gpus_that_slurm_grants"),
    ("skypilot", "names of cards were not SkyPilot's",
     "test_skypilot_reads_every_task"),
)  # fmt: skip
HEAD = """# What tools make of exports

Made by `python benchmarks/held.py`: tests of `tests/targets` (`pytest -m targets`) hold
exports to the tools themselves, on processors and without a GPU. Outcomes, what was
seen and what was skipped are the tests' own; versions are those that were found.
"""
Row = dict[str, Any]


# --- the tests ---------------------------------------------------------------------


def run(only: str) -> None:
    """Run the files, one after the other, and keep a line a test."""
    with (RESULTS / LINES).open("a", encoding="utf-8") as lines:
        for path in sorted(TESTS.glob("test_*.py")):
            if only in path.name:
                for row in outcomes(path):
                    print(row["outcome"], row["id"], flush=True)
                    lines.write(json.dumps({**row, "commit": of_the_code()}) + "\n")


def outcomes(path: Path) -> Iterator[Row]:
    """A row for every test of a file."""
    begun = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = ["-m", "targets", "-q", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", *words, str(path)]
        places = [f"--junitxml={report}", f"--basetemp={folder}/runs"]
        subprocess.run([*command, *places], cwd=ROOT, check=False)
        cases = ElementTree.parse(report).getroot().iter("testcase")
        for case in cases:
            yield {"file": path.name, "run": begun, **_case(case)}


def _case(case: ElementTree.Element) -> Row:
    told: dict[str, list[str]] = {}
    for one in case.iter("property"):
        told.setdefault(one.attrib["name"], []).append(one.attrib["value"])
    outcome, why = "passed", ""
    for kind in ("skipped", "failure", "error"):
        if (found := case.find(kind)) is not None:
            outcome, why = kind, found.attrib.get("message", "").splitlines()[0]
    targets = told.get("target", [])
    return {
        "id": case.attrib["name"],
        "test": told.get("test", [case.attrib["name"]])[0],
        "targets": targets,
        "outcome": outcome,
        "why": why,
        "notes": told.get("note", []),
        "seconds": round(float(case.attrib["time"]), 1),
        "versions": {target: found_version(target) for target in targets},
    }


def found_version(target: str) -> str:
    """The release that is installed, and the commit of its checkout."""
    found = []
    if (release := HELD[target].installed) is not None:
        found.append(f"{HELD[target].package} {release}")
    if folder := os.environ.get(CHECKOUTS.get(target, "")):
        found.append(f"checkout {commit(folder)}")
    if target in ("jobset", "kueue") and os.environ.get("CRDS"):
        found.append(f"definitions of {HELD[target].oldest}")
    if target == "slurm" and shutil.which("slurmd"):
        asked = subprocess.run(["slurmd", "-V"], capture_output=True, text=True)
        found.append(asked.stdout.strip())
    return ", ".join(found)


def commit(folder: str) -> str:
    """The commit of a checkout, or that it tells none."""
    asked = ["git", "-C", folder, "rev-parse", "--short=7", "HEAD"]
    ended = subprocess.run(asked, capture_output=True, text=True, check=False)
    return ended.stdout.strip() or "without a commit"


# --- the page ----------------------------------------------------------------------


def latest() -> list[Row]:
    """The rows of the latest run of every file."""
    rows = [json.loads(line) for line in (RESULTS / LINES).open(encoding="utf-8")]
    last = {row["file"]: row["run"] for row in rows}
    return [row for row in rows if row["run"] == last[row["file"]]]


def write_page() -> None:
    """The page: a row a target, its tests, first findings, refusals."""
    rows = latest()
    text = [HEAD, "## Targets\n", *grid(
        ("trainer", "tool", "files written", "own parser says", "tests",
         "found here", "not run here"),
        (target_row(name, rows) for name in HELD),
    )]  # fmt: skip
    text += ["\n## What was wrong once\n", *grid(
        ("target", "found at first", "now", "test"),
        (finding_row(*finding, rows) for finding in FINDINGS),
    )]  # fmt: skip
    text += ["\n## What exporters refuse, in their words\n", *grid(
        ("target", "uneven stages", "degrees that differ", "pipelines that differ"),
        (refusals(name) for name in exporting.names()),
    )]  # fmt: skip
    text += ["\n## Tests\n", *grid(
        ("target", "test", "outcome", "seconds", "seen"),
        (test_row(*key, rows) for key in tests_of(rows)),
    )]  # fmt: skip
    runs = sorted({row["run"] for row in rows})
    text.append(f"\n*Run {runs[0]}Z to {runs[-1]}Z.*\n")
    publish(PAGE, "\n".join(text), LINES)


def of(target: str, rows: list[Row], test: str = "") -> list[Row]:
    """Rows of a target, and of one test of it."""
    return [
        row for row in rows
        if target in row["targets"] and test in ("", row["test"])
    ]  # fmt: skip


def verdict(rows: list[Row]) -> str:
    """What outcomes say together, with the reasons of what was not run."""
    if not rows:
        return "no test"
    failed = [row for row in rows if row["outcome"] in ("failure", "error")]
    if failed:
        return cell(f"refused: {failed[0]['why']}")
    skipped = sorted({row["why"] for row in rows if row["outcome"] == "skipped"})
    if all(row["outcome"] == "skipped" for row in rows):
        return cell(f"not run: {'; '.join(skipped)}")
    return "works" + cell(f", but not run: {'; '.join(skipped)}" if skipped else "")


def target_row(target: str, rows: list[Row]) -> list[str]:
    """A target, and what its tests say together."""
    mine = of(target, rows)
    passed = sum(row["outcome"] == "passed" for row in mine)
    found = {row["versions"][target] for row in mine} - {""}
    here = "; ".join(sorted(found)) or "none"
    counted = f"{passed} of {len(mine)}" if mine else "–"
    tool = HELD[target].tool
    lacks = NOT_HERE.get(target, "")
    return [target, tool, written(target), verdict(mine), counted, here, lacks]


def written(target: str) -> str:
    """The files of an export, or why there is none."""
    data, plan = instance_for(target), even_for(target)
    if why := exporting.reasons(target, data, plan):
        return cell("; ".join(why))
    return ", ".join(f"`{name}`" for name in exporting.export_plan(target, data, plan))


def finding_row(target: str, once: str, test: str, rows: list[Row]) -> list[str]:
    """Something that was wrong, and what its test says now, or its exporter."""
    if test:
        return [target, once, verdict(of(target, rows, test)), f"`{test}`"]
    both = (instance(), carded())
    why = "; ".join(w for data in both for w in exporting.reasons(target, data, UNEVEN))
    return [target, once, cell(f"refused: {why}" if why else "taken"), "its exporter"]


def carded() -> Instance:
    """The machines of the tests with cards by name, of which some have no bf16."""
    text = instance(costs={"precision": "bf16_mixed"}).model_dump_json()
    for name, card in (("big", "A100-80GB-SXM4"), ("small", "V100-32GB-SXM2")):
        text = text.replace(f'"{name}"', f'"{card}"')
    return Instance.model_validate_json(text)


def refusals(target: str) -> list[str]:
    """Why an exporter refuses three plans; a dash where it takes one."""
    plans = (UNEVEN, MIXED, asymmetric())
    found = ("; ".join(exporting.reasons(target, instance(), p)) for p in plans)
    return [target, *(cell(why) or "takes it" for why in found)]


def tests_of(rows: list[Row]) -> list[tuple[str, str]]:
    """Targets and their tests, in the order of both names."""
    return sorted({(t, row["test"]) for row in rows for t in row["targets"]})


def test_row(target: str, test: str, rows: list[Row]) -> list[str]:
    """A test of a target over all its parameters."""
    mine = of(target, rows, test)
    notes = dict.fromkeys(note for row in mine for note in row["notes"])
    seen = "<br>".join(f"`{cell(note)}`" for note in list(notes)[:8])
    seconds = sum(row["seconds"] for row in mine)
    name = test.removeprefix("test_").replace("_", " ")
    counts = f" ({len(mine)} cases)" if len(mine) > 1 else ""
    return [target, name + counts, verdict(mine), f"{seconds:.0f}", seen or "–"]


def cell(text: str) -> str:
    """Words that a table holds."""
    return " ".join(text.split()).replace("|", "\\|").replace("`", "'")[:400]


def main() -> None:
    """Run the tests where that is asked, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--only", default="", metavar="WORD")
    asked = parser.parse_args()
    if asked.run:
        run(asked.only)
    write_page()


if __name__ == "__main__":
    main()
