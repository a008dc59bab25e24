"""Does everything end within its time limit? Planners and exact methods, large data.

    python benchmarks/time_limits.py [--only WORD ...] [--limits 3,10] [--wall]

Runs `hetopt plan` and `hetopt solve` in a process each, with the time limits, and takes
CPU seconds (user and system, of the process and its children), wall seconds and peak
memory from the operating system. A run may take 1.1 times its limit and 2 s more, all
included: start, reading, the search, the last judgement, writing the document.

Limits are of the wall clock, and on a busy machine a process gets a part of it. So
the clock of the child is set to its own CPU seconds, unless `--wall` is given: what
the limit then means is what it means on an idle machine. `--only` takes the rows whose
words hold all of these (`--only 4096 islands`). Appends rows to
results/time_limits.jsonl and writes results/time_limits.md from the latest ones. All
rows take about a quarter of an hour.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from _measuring import keep, kept, publish
from _pages import grid

import hetopt
from hetopt import registry
from hetopt.text import writing

LINES, PAGE = "time_limits.jsonl", "time_limits.md"
CLUSTERS = {
    "64 GPUs": "generated:islands/64/1",
    "512 GPUs": "generated:unequal/512/0",
    "4,096 GPUs": "generated:islands/4096/1",
    "1,024 nodes, links by pair": "generated:pairwise/8192/1",
}
PROBLEMS = {
    "one_pipeline": "generated:islands/64/1",
    "device_grouping": "generated:grouping/10000/1",
    "layer_partition": "generated:partition/1000/1",
    "provisioning": "generated:many_offers/64/1",
}
LOSING = "generated:unequal/512/0"
HEAD = """# Time limits

Made by `python benchmarks/time_limits.py`. A run may take 1.1 times its limit and 2 s
more of CPU time, from the start of the process to its end; what took longer is marked
**over**. `time_limits.jsonl` has all rows and the machine.
"""
_CPU_CLOCK = """
import time
time.monotonic = time.process_time
from hetopt.cli import main
main()
"""
_WALL_CLOCK = "from hetopt.cli import main; main()"


class Case(NamedTuple):
    """A command, its size in words, and its limit."""

    subject: str
    size: str
    words: tuple[str, ...]
    limit_s: float

    @property
    def most_s(self) -> float:
        """What the run may take."""
        return 1.1 * self.limit_s + 2


def cases(limits: list[float], folder: Path) -> Iterator[Case]:
    """Every planner and exact method at every size, under every limit."""
    ways = {"plan": (), "plan --exact": ("--exact",)}
    for name in registry.entries_for("planners", "training_plan"):
        ways[name] = ("--planner", name)
    ways["hexiscale --improve"] = ("--planner", "hexiscale", "--improve")
    for size, name in CLUSTERS.items():
        for subject, words in ways.items():
            for limit in limits:
                place = str(folder / "pairs.json") if "pairwise" in name else name
                yield Case(subject, size, ("plan", place, *words), limit)
    for method, name in PROBLEMS.items():
        for limit in limits:
            yield Case(
                f"solve: {method}", name, ("solve", name, "--method", method), limit
            )
    for limit in limits:
        words = ("recover", str(folder / "old.json"), LOSING, "--lost", "node3")
        # The limit is the method's; planning anew has one of its own.
        asked = (*words, "--exact", "--planning", "1")
        yield Case("recover --exact", f"{LOSING} loses a node", asked, limit)


def write_inputs(folder: Path) -> None:
    """The plan of a cluster that loses a node, and the cluster with links by pair.

    That one as a user writes it: in rows.
    """
    plan = hetopt.plan(LOSING, "megatron")
    writing.write_json(folder / "old.json", plan.to_json())
    instance = hetopt.load(CLUSTERS["1,024 nodes, links by pair"])
    document = instance.model_dump(mode="json")
    inter = document["cluster"]["inter"]
    inter["pairs"] = [list(pair.values()) for pair in inter["pairs"]]
    writing.write_json(folder / "pairs.json", document)


def run(case: Case, wall: bool, folder: Path) -> dict[str, Any]:
    """Run one case, and say what it took and how it ended."""
    code = _WALL_CLOCK if wall else _CPU_CLOCK
    words = [*case.words, "--time-limit", str(case.limit_s), "--json"]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        started = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-c", code, *words], stdout=out, stderr=err
        )
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - started
    cpu = used.ru_utime + used.ru_stime
    return {
        "subject": case.subject,
        "size": case.size,
        "limit_s": case.limit_s,
        "cpu_s": round(cpu, 2),
        "wall_s": round(seconds, 2),
        "peak_mib": used.ru_maxrss >> (20 if sys.platform == "darwin" else 10),
        "over": cpu > case.most_s,
        "outcome": outcome(os.waitstatus_to_exitcode(status), folder),
        "clock": "wall" if wall else "cpu",
    }


def outcome(code: int, folder: Path) -> str:
    """A plan, none and why, or refused and why."""
    if code in (0, 3, 4):
        found = json.loads((folder / "out").read_text())
        if found["plan"] is not None:
            return f"plan, {found['status']}"
        reasons = found["reasons"] or ["no reason"]
        return f"none, {found['status']}: {reasons[0]}"
    return f"exit {code}: {(folder / 'err').read_text().strip()[-200:]}"


def write_page() -> None:
    """The page, from the latest row of each case."""
    lines = kept(LINES)
    latest = {(x["size"], x["subject"], x["limit_s"]): x for x in lines}
    words = [HEAD]
    over = sum(x["over"] for x in latest.values())
    machine = lines[-1]["machine"]
    words.append(
        f"{len(latest)} rows, {over} over, on {machine['cores']} cores of "
        f"{machine['processor']}, Python {machine['python']}; by the clock of the "
        f"{' and the '.join(sorted({x['clock'] for x in latest.values()}))}.\n"
    )
    sizes = [*CLUSTERS, *PROBLEMS.values(), f"{LOSING} loses a node"]
    for size in dict.fromkeys(sizes):
        rows = [x for x in latest.values() if x["size"] == size]
        if rows:
            words += [
                f"## {size}\n",
                *grid(list(_HEADERS), list(map(_cells, rows))),
                "",
            ]
    publish(PAGE, "\n".join(words), LINES)


_HEADERS = ("what", "limit, s", "CPU, s", "wall, s", "peak, MiB", "", "outcome")


def _cells(row: dict[str, Any]) -> list[str]:
    said = row["outcome"].replace("|", "/").replace("\n", " ")
    return [
        row["subject"],
        f"{row['limit_s']:g}",
        f"{row['cpu_s']:.1f}",
        f"{row['wall_s']:.1f}",
        str(row["peak_mib"]),
        "**over**" if row["over"] else "",
        said if len(said) <= 90 else said[:87] + "...",
    ]


def main(words: list[str] | None = None) -> None:
    """Run the rows that were asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD")
    parser.add_argument("--limits", default="3,10")
    parser.add_argument("--wall", action="store_true")
    asked = parser.parse_args(words)
    limits = [float(word) for word in asked.limits.split(",")]
    with tempfile.TemporaryDirectory(prefix="hetopt-limits-") as name:
        folder = Path(name)
        for case in cases(limits, folder):
            label = f"{case.subject} {case.size} {case.words[1]}".replace(",", "")
            if not all(word in label for word in asked.only):
                continue
            if not any(folder.iterdir()):
                # In a process of its own: the peak memory of a process that we start
                # is never below ours.
                spawned = multiprocessing.get_context("spawn")
                maker = spawned.Process(target=write_inputs, args=(folder,))
                maker.start()
                maker.join()
            found = run(case, asked.wall, folder)
            keep(LINES, found)
            print(*_cells(found)[:6], case.size, found["outcome"][:80], flush=True)
    write_page()


if __name__ == "__main__":
    main()
