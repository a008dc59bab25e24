"""A new user's story: four models on 40 mixed GPUs, planned for every trainer.

    python benchmarks/story.py [--models A,B] [--parts targets,flags]
        [--limit 20] [--flags-limit 10] [--page]

By the command line alone: `hetopt assemble` of a config.json and a hostfile, then for
every target `hetopt plan --for` and `hetopt export --to`; and beside the default
command every planner, with and without `--improve`, and other sizes of micro-batches,
each in the same time. Appends rows to results/story.jsonl and writes results/story.md
from the latest row of each command; `--page` writes the page alone. All of it takes
about 20 minutes.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _measuring import keep, kept, publish
from _pages import grid

from hetopt import registry
from hetopt.api.targets import NAMES
from hetopt.report import words

LINES, PAGE = "story.jsonl", "story.md"
DATA = Path(__file__).parent / "data" / "story"
MODELS = ("llama-3-8b", "llama-3.1-70b", "qwen2.5-14b", "mixtral-8x7b")
HOSTS = (
    *("--from", "hostfile", "--sequence-length", "8192", "--global-batch", "128"),
    *("-o", "inter_gbytes_per_s=25GbE", "--island", "a100-*=25GB/s"),
)
OTHER_SIZES = ("2", "1,2,4")  # of micro-batches; assemble's default is 1
NEAR = 0.02
Row = dict[str, Any]
HEAD = """# A new user's story

Made by `python benchmarks/story.py`: Llama-3-8B, Llama-3.1-70B, Qwen2.5-14B and
Mixtral-8x7B on 2 hosts of 8 A100-80GB (25 GB/s between them) and 3 of 8 RTX 4090
(25GbE), 128 sequences of 8192 tokens an iteration; what `assemble` assumes is left as
it is. `data/story/` has the four config.json and the hostfile.

*least room* is of the fullest GPU, beside the reserve that `assemble` keeps of its
card. `executor` is what `assemble` writes, plans of every shape that the architecture
allows: no trainer of its own, its plans go to a launcher of processes (`slurm`), with
the plan beside. It is the default command too. `story.jsonl` has every command and the
machine.
"""


def hetopt(*said: str) -> tuple[int, str, str]:
    """Run a command: its exit code, stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "hetopt", *said], capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


def assembled(model: str, folder: Path, *more: str) -> Path:
    """An instance, as a new user makes it."""
    place = folder / f"{model}{''.join(more)}.yaml".replace(",", "-")
    files = (str(DATA / model / "config.json"), str(DATA / "hosts.txt"))
    code, _, err = hetopt("assemble", *files, *HOSTS, *more, "--out", str(place))
    if code:
        raise SystemExit(err)
    return place


def planned(place: Path, limit: float, *flags: str) -> tuple[Path, Row]:
    """A plan's file, and what is told of it."""
    out = place.parent / "plan.json"
    out.unlink(missing_ok=True)
    asked = ("plan", str(place), *flags, "--time-limit", f"{limit:g}")
    code, said, err = hetopt(*asked, "--out", str(out), "--json")
    found = json.loads(said)
    if code == 2:
        return out, {"exit": code, "error": err.strip() or said}
    told = found["evaluation"] or {}
    return out, {
        "exit": code,
        "status": found["status"],
        "reasons": found["reasons"],
        "iteration_us": found["objective"],
        "bound_us": found["bound"],
        "gap": found["gap"],
        "seconds": sum(found["seconds"].values()),
        "mfu": told.get("mfu"),
        "least_headroom_mib": told.get("least_headroom_mib"),
    }


def targets(model: str, folder: Path, limit: float) -> Iterator[Row]:
    """Each target: its plan, and whether its exporter takes it."""
    place = assembled(model, folder)
    for name in NAMES:
        plan, row = planned(place, limit, "--for", name)
        if row.get("iteration_us") is not None:
            to = "slurm" if name == "executor" else name
            out = folder / f"{model}-{name}"
            code, _, err = hetopt("export", str(plan), "--to", to, "--out", str(out))
            checked, _, _ = hetopt("check", str(plan))
            row |= {"export": code, "refusal": err.strip() if code else None}
            row |= {"check": checked}
        yield {"what": name, **row}


def flags(model: str, folder: Path, limit: float) -> Iterator[Row]:
    """The default command, and whatever else a user could have typed."""
    place = assembled(model, folder)
    yield {"what": "default", **planned(place, limit)[1]}
    for name in registry.entries_for("planners", "training_plan"):
        for more in ((), ("--improve",)):
            said = ("--planner", name, *more)
            yield {"what": " ".join(said), **planned(place, limit, *said)[1]}
    for sizes in OTHER_SIZES:
        other = assembled(model, folder, "--micro-batches", sizes)
        what = f"assemble --micro-batches {sizes}"
        yield {"what": what, **planned(other, limit)[1]}


PARTS = {"targets": targets, "flags": flags}


# --- the page ----------------------------------------------------------------------


def write_page() -> None:
    """The page, from the latest row of each command."""
    lines = kept(LINES)
    latest = {(x["part"], x["model"], x["what"]): x for x in lines}
    rows = list(latest.values())
    text = [HEAD, *_in_short(rows), ""]
    for model in MODELS:
        for_targets = [x for x in rows if (x["model"], x["part"]) == (model, "targets")]
        by_flags = [x for x in rows if (x["model"], x["part"]) == (model, "flags")]
        if for_targets:
            text += [f"## {model}\n", *_targets(for_targets), ""]
        if by_flags:
            text += [*_flags(by_flags, for_targets), ""]
    publish(PAGE, "\n".join(text), LINES)


def _in_short(rows: list[Row]) -> Iterator[str]:
    """A line for each model: exporters, and the default command beside the best."""
    cells = []
    for model in MODELS:
        mine = [x for x in rows if x["model"] == model and x.get("iteration_us")]
        made = [x for x in mine if x["part"] == "targets"]
        default = [x for x in made if x["what"] == "executor"]
        if not default:
            continue
        best = min(mine, key=lambda row: row["iteration_us"])
        taken = sum(not (x["export"] or x["check"]) for x in made)
        more = default[0]["iteration_us"] / best["iteration_us"] - 1
        cells.append(
            [
                model,
                f"{taken} of {len(made)}",
                words.amount(default[0]["iteration_us"], "us"),
                words.amount(best["iteration_us"], "us"),
                _command(best),
                words.share(more) if more <= NEAR else f"**{words.share(more)}**",
            ]
        )
    headers = ("model", "plans accepted", "default", "best of any flags", "by", "above")
    yield from grid(headers, cells)
    yield f"\nMore than {NEAR:.0%} above the best is a fault of the default, in bold."


def _targets(rows: list[Row]) -> Iterator[str]:
    headers = ("plan --for", "iteration", "no faster than", "gap", "MFU")
    limit = rows[-1]["limit_s"]
    yield f"`hetopt plan --for TARGET --time-limit {limit:g}`, exported to it:\n"
    cells = map(_target, rows)
    yield from grid((*headers, "least room", "planning", "exporter"), cells)


def _target(row: Row) -> list[str]:
    if row.get("iteration_us") is None:
        why = row.get("error") or "; ".join([row["status"], *row["reasons"]])
        return [row["what"], *["–"] * 6, why.replace("|", "/")]
    accepted = "accepts" if not row["export"] else f"**refuses**: {row['refusal']}"
    return [
        row["what"],
        words.amount(row["iteration_us"], "us"),
        words.amount(row["bound_us"], "us"),
        words.share(row["gap"]),
        words.share(row["mfu"]),
        words.memory(row["least_headroom_mib"]),
        words.duration(row["seconds"]),
        accepted if not row["check"] else f"{accepted}; **check refuses**",
    ]


def _flags(rows: list[Row], for_targets: list[Row]) -> Iterator[str]:
    (default,) = [row for row in rows if row["what"] == "default"]
    shown = [row for row in rows if row.get("iteration_us") is not None]
    best = min(shown, key=lambda row: row["iteration_us"])
    yield f"The default command and other flags, {default['limit_s']:g} s each:\n"
    first = sorted(shown, key=lambda row: row["iteration_us"])
    cells = ([x["what"], *_beside(x, default)] for x in first)
    yield from grid(("command", "iteration", "slower than the default"), cells)
    none = [row["what"] for row in rows if row.get("iteration_us") is None]
    yield f"\nNo plan: {', '.join(none)}.\n" if none else ""
    every = [best, *(x for x in for_targets if x.get("iteration_us") is not None)]
    yield _verdict(default, best, "these", default["limit_s"])
    if for_targets:
        least = min(every, key=lambda row: row["iteration_us"])
        longer = next((x for x in for_targets if x["what"] == "executor"), default)
        yield _verdict(longer, least, "both tables", longer["limit_s"])


def _verdict(default: Row, best: Row, of_what: str, limit: float) -> str:
    if default.get("iteration_us") is None:
        return f"The default command found no plan in {limit:g} s."
    more = default["iteration_us"] / best["iteration_us"] - 1
    verdict = "within 2 %" if more <= NEAR else "**not within 2 %**"
    return (
        f"The default command's plan of {limit:g} s is {words.share(max(0.0, more))} "
        f"above the best of {of_what} (`{_command(best)}`): {verdict}."
    )


def _command(row: Row) -> str:
    return f"--for {row['what']}" if row["part"] == "targets" else str(row["what"])


def _beside(row: Row, default: Row) -> list[str]:
    time = words.amount(row["iteration_us"], "us")
    if default.get("iteration_us") is None:
        return [time, words.NONE]
    more = row["iteration_us"] / default["iteration_us"] - 1
    return [time, words.share(more, signed=True)]


def main(words: list[str] | None = None) -> None:
    """Run what was asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--limit", type=float, default=20)
    parser.add_argument("--flags-limit", type=float, default=10)
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args(words)
    limits = {"targets": asked.limit, "flags": asked.flags_limit}
    with tempfile.TemporaryDirectory(prefix="hetopt-story-") as folder:
        for part in asked.parts.split(",") if not asked.page else ():
            for model in asked.models.split(","):
                for row in PARTS[part](model, Path(folder), limits[part]):
                    found = {"part": part, "model": model, "limit_s": limits[part]}
                    print(part, model, row, flush=True)
                    keep(LINES, {**found, **row})
                write_page()
    write_page()


if __name__ == "__main__":
    main()
