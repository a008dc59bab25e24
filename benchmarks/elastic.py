"""Ranks killed and stopped along a spot trace: what an elastic run loses by it.

    python benchmarks/elastic.py --kills 50
    python benchmarks/elastic.py --page

A tiny model trains on CPUs of this machine, in double precision, by `hetopt.run(...,
elastic=True)`, on nodes that come and go along a random trace of spot GPUs. What leaves
is killed (SIGKILL) or stopped (SIGSTOP) without notice, at any time: within steps,
saves, and while the run starts again; what comes is announced in the file of nodes.
The run of the same steps on one rank, left alone, says what losses had to be. Rows go
to results/elastic.jsonl, `--page` writes results/elastic.md from the last run.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

RESULTS = Path(__file__).parent / "results"
LINES, PAGE = "elastic.jsonl", "elastic.md"
EVERY = 5
Row = dict[str, Any]
INSTANCE = {
    "name": "spot",
    "model": {
        **{"name": "tiny", "layers": 4, "hidden": 32, "heads": 4, "vocabulary": 64},
        **{"gated": True, "kv_heads": 4, "intermediate": 48},
    },
    "cluster": {
        "gpus": {
            "fast": {"peak_tflops": 1, "memory_gib": 8},
            "slow": {"peak_tflops": 0.5, "memory_gib": 8},
        },
        "nodes": [
            {"name": "a", "gpu": "fast", "count": 2, "intra_gbytes_per_s": 10},
            {"name": "b", "gpu": "slow", "count": 1, "intra_gbytes_per_s": 10},
            {"name": "c", "gpu": "slow", "count": 1, "intra_gbytes_per_s": 10},
        ],
        "inter": {"gbytes_per_s": 1},
    },
    "workload": {"sequence_length": 16, "global_batch": 8, "micro_batch_sizes": [1, 2]},
}
ALONE = {
    "pipelines": [
        {
            "micro_batches": 8,
            "micro_batch_size": 1,
            "stages": [{"layers": [0, 4], "replicas": [{"gpus": ["a:0"]}]}],
        }
    ]
}
SETTINGS: Row = {"cpu": True, "precision": "fp64", "decay": "none", "timeout_s": 20.0}
HEAD = """# Elastic runs: ranks killed and stopped along a spot trace

Made by `python benchmarks/elastic.py`: a tiny Llama trains on CPUs by `hetopt run
--elastic`, states saved every {every} steps, --timeout {timeout_s:g} s, on 4 "GPUs" of
3 nodes that come and go along a random trace. What leaves is killed or stopped without
notice, in steps and saves ({in_steps} times) and while the run starts again
({in_starts} times). {cores} cores, shared with other programs: starting Python and
PyTorch for each rank is most of the seconds.
"""

TAIL = """
{changes} changes of plan: {losses} after a loss, the others announced. {steps} steps
in {wall_s:.0f} s, {gaps} missing; {again} done twice, at most {most} from one loss to
the next. From the notice of a loss to the next step: {after:.1f} s (median), planning
and the start of processes included; what is stopped is noticed after --timeout.
{restarts} starts anew for other reasons. Losses differ from those of the run on one
rank, left alone, by at most {furthest:.1e}. A kill while the run starts again counts
until the next step that any plan did, and so does waiting for nodes."""


class Ranks:
    """The processes of the ranks that run now."""

    def __init__(self) -> None:
        words = ["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        self.pids: dict[str, int] = {}
        for line in told.splitlines():
            pid, _, words_of = line.strip().partition(" ")
            parts = words_of.split()
            if "hetopt.runtime.child" not in words_of or not parts[-3].endswith("json"):
                continue
            try:
                job = json.loads(Path(parts[-3]).read_text(encoding="utf-8"))
            except (OSError, ValueError):  # it has just ended
                continue
            self.pids[job["gpus"][int(parts[-2])]] = int(pid)

    def on(self, nodes: set[str]) -> dict[str, int]:
        """Those on some nodes, by their GPUs."""
        return {g: pid for g, pid in self.pids.items() if g.split(":")[0] in nodes}


class Driver(threading.Thread):
    """Follows the trace: kills what leaves, announces what comes."""

    def __init__(self, moments: list[set[str]], file: Path, kills: int, seed: int):
        super().__init__(daemon=True)
        self.moments, self.file, self.kills = moments, file, kills
        self.random = Random(f"elastic/{seed}")
        self.rows: list[Row] = []
        self.stepped = threading.Condition()
        self.steps = 0  # since the last change
        self.idle = False  # the run waits for nodes
        self.hurt: set[int] = set()

    def heard(self, row: Row) -> None:
        """The run's progress, by the thread of the supervisor."""
        now = time.monotonic()
        with self.stepped:
            self.idle = "waiting_for_nodes" in row
            if "step" in row:
                self.steps += 1
                for one in self.rows:
                    if one["went_on_s"] is None and one["changes"]:
                        one["went_on_s"] = now - one["at"] - row["seconds"]
            else:
                self.steps = 0
                if "reason" in row and row["lost"]:
                    for one in self.rows:
                        if one["went_on_s"] is None:
                            one["changes"] += 1
            self.stepped.notify_all()

    def run(self) -> None:
        """Until there were enough kills and the run has gone on after the last one."""
        there = self.moments[0]
        for after in self.moments[1:]:
            if len(self.rows) >= self.kills:
                break
            self._wait()
            leaving = there - after
            if leaving and not self._kill(leaving):
                self._announce(after)  # they had no rank, so that nobody notices
            if after - there:
                self._announce(after)
            there = after
        self._announce({"a", "b", "c"})
        with self.stepped:
            self.stepped.wait_for(
                lambda: (
                    all(r["went_on_s"] is not None for r in self.rows)
                    and self.steps > EVERY
                ),
                timeout=300,
            )
        os.kill(os.getpid(), signal.SIGINT)

    def _wait(self) -> None:
        """Some steps, and a part of one; or a time, whatever the run is at."""
        if self.random.random() < 0.25:
            time.sleep(self.random.uniform(0, 6))
            return
        steps = self.random.randint(1, 2 * EVERY)
        with self.stepped:
            self.stepped.wait_for(lambda: self.idle or self.steps >= steps, timeout=60)
        time.sleep(self.random.uniform(0, 0.3))

    def _announce(self, nodes: set[str]) -> None:
        draft = self.file.with_suffix(".new")
        draft.write_text("\n".join(sorted(nodes)) + "\n", encoding="utf-8")
        draft.replace(self.file)

    def _kill(self, nodes: set[str]) -> int:
        """Kill or stop the ranks of nodes; how many."""
        kind = self.random.choice([signal.SIGKILL, signal.SIGSTOP])
        with self.stepped:
            found = Ranks().on(nodes)
            for gpu, pid in found.items():
                if pid in self.hurt:
                    continue
                self.hurt.add(pid)
                try:
                    os.kill(pid, kind)
                except ProcessLookupError:
                    continue
                row = {"signal": kind.name, "gpu": gpu, "at": time.monotonic()}
                row |= {"in_step": self.steps > 0, "went_on_s": None, "changes": 0}
                self.rows.append(row)
                print(json.dumps(row), flush=True)
        return len(found)


def measured(kills: int, seed: int) -> Row:
    """Follow a trace until there were so many kills."""
    import hetopt
    from hetopt.api.replaying import traces
    from hetopt.schema import Instance

    data = Instance.model_validate_json(json.dumps(INSTANCE))
    steps = traces.generate(seed, gpus=4, rows=40 * kills)
    followed = traces.moments(data.planned_cluster, {None: steps}, seed=seed)
    moments = [set(m.nodes) for m in followed if m.nodes]
    with tempfile.TemporaryDirectory(prefix="hetopt-elastic-") as folder:
        place, file = Path(folder), Path(folder, "nodes")
        plan = place / "alone.json"
        plan.write_text(json.dumps({"instance": INSTANCE, "plan": ALONE}))
        driver = Driver(moments, file, kills, seed)
        driver._announce(moments[0])
        threading.excepthook = lambda hook: os.kill(os.getpid(), signal.SIGINT)
        driver.start()
        begun = time.monotonic()
        ran = hetopt.run(
            plan,
            steps=10**6,
            checkpoint=str(place / "states"),
            every=EVERY,
            elastic=True,
            nodes=str(file),
            restarts=100,
            progress=driver.heard,
            **SETTINGS,
        )
        wall_s = time.monotonic() - begun
        whole = hetopt.run(plan, steps=len(ran.steps), **SETTINGS)
    pairs = list(zip(ran.steps, whole.steps, strict=True))
    return {
        "kills": driver.rows,
        "changes": ran.changes,
        "restarts": ran.restarts,
        "steps": len(ran.steps),
        "gaps": sum(row["step"] != n for n, row in enumerate(ran.steps, 1)),
        "furthest": max(abs(one["loss"] - two["loss"]) for one, two in pairs),
        "wall_s": wall_s,
        "every": EVERY,
        "timeout_s": SETTINGS["timeout_s"],
        "cores": os.cpu_count(),
        "seed": seed,
    }


def write_page() -> None:
    """The page, from the last run."""
    from _measuring import publish
    from _pages import grid

    ran = json.loads((RESULTS / LINES).read_text(encoding="utf-8").splitlines()[-1])
    kills, changes = ran["kills"], ran["changes"]
    inside = sum(kill["in_step"] for kill in kills)
    words = {k: ran[k] for k in ("every", "timeout_s", "cores")}
    text = [HEAD.format(in_steps=inside, in_starts=len(kills) - inside, **words)]
    cells = []
    for name in ("SIGKILL", "SIGSTOP"):
        times = sorted(k["went_on_s"] for k in kills if k["signal"] == name)
        cells.append(
            [
                name,
                str(len(times)),
                f"{statistics.median(times):.1f} s",
                f"{times[-1]:.1f} s",
            ]
        )
    text += grid(("signal", "ranks", "until the next step: median", "longest"), cells)
    again: list[int] = []  # steps done twice from each loss to the next one
    losses = [change for change in changes if "rank" in change["reason"]]
    for change in changes:
        if change in losses or not again:
            again.append(0)
        again[-1] += change["recomputed"]
    after = statistics.median(c["seconds"] for c in losses if c["seconds"] is not None)
    counts = {"changes": len(changes), "losses": len(losses), "after": after}
    told = {k: ran[k] for k in ("steps", "wall_s", "gaps", "restarts", "furthest")}
    text.append(TAIL.format(**counts, **told, again=sum(again), most=max(again)))
    publish(PAGE, "\n".join([*text, ""]), LINES)


def main() -> None:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / LINES)
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    from _measuring import commit

    if asked.kills:
        row = measured(asked.kills, asked.seed)
        with asked.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**row, "commit": commit()}) + "\n")
    if asked.page:
        write_page()


if __name__ == "__main__":
    main()
