"""hetopt beside Sailor's planner, on its five clusters, by both models.

    python benchmarks/beside.py --sailor CHECKOUT [--plans FOLDER] [--limit 10]

Clusters of 32 to 512 A100 and V100 train OPT-350M, 1,024 sequences at a time, by the
profiles, fits of the network and description of memory in the checkout of
github.com/eth-easl/sailor. Planned are two instances:

- *ours*: what `hetopt import sailor` makes of these files;
- *theirs*: what Sailor's simulator counts, said in our settings (`counted`): rings and
  transfers at what one GPU or one group gets alone, no latency, no updates. There a
  type of GPU has one degree of tensor parallelism in all stages, and each pair of
  degrees is planned with an equal share of the time; the best by our judge is taken.

hetopt plans both in `--limit` CPU seconds, and the planners that we wrote by the papers
(`PLANNERS`) plan ours. Every plan is judged by our judge, as part of *ours*, and by
Sailor's simulator, which is imported from the checkout (torch and pandas need not be
there). `--plans` names a folder of plans of Sailor's own planner, `32+0.json` and so
on, as its `get_sorted_plans` gives them; without it, what it found when it was run for
this comparison stands in the page (`SAILOR`). Appends rows to results/beside.jsonl and
writes results/beside.md; `--page` does that alone. Five minutes.
"""

import argparse
import contextlib
import io
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import import_module
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from _measuring import RESULTS, keep, publish
from _pages import grid

import hetopt
from hetopt.formats.sailor import plan as sailor_plan
from hetopt.formats.sailor import profiles
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance

LINES, PAGE = "beside.jsonl", "beside.md"
#: GPUs of each type; hosts have 4.
CLUSTERS = {
    "32+0": (32, 0),
    "16+16": (16, 16),
    "32+96": (32, 96),
    "80+240": (80, 240),
    "128+384": (128, 384),
}
HOST = 4
PLANNERS = ("sailor", "megatron", "amp", "metis", "hexiscale", "whale")
#: Its planner at cf2c8e3: CPU seconds, and s per iteration by its simulator.
SAILOR = {
    "32+0": (0.8, 7.993),
    "16+16": (1.0, 13.005),
    "32+96": (1.6, 5.884),
    "80+240": (3.3, 2.771),
    "128+384": (6.1, 1.912),
}
TYPES = {"A100-40": "A100-40GB-SXM4", "V100-16": "V100-16GB-SXM2"}
ZONE = "us-central1-a"
MODEL = "OPT-350"
SHAPE = {"hidden": 1024, "heads": 16, "vocabulary": 50272}
SEQUENCE, BATCH = 2048, 1024
RESERVE_MIB = 2861  # of its `check_config_fits`: 3e9 bytes
DEGREES = (1, 2, 4)
#: Messages at which a fit of the network is read: a ring's part of a few layers.
MESSAGE_MB = 16
#: GB/s of a link that everything gets a part of, in whole numbers of adapters.
WHOLE = 24.0
Document = dict[str, Any]


class Cluster(NamedTuple):
    """A cluster as documents: what is imported, and its hosts' types."""

    name: str
    document: Document

    @property
    def instance(self) -> Instance:
        """The instance that hetopt plans, *ours*."""
        return Instance.model_validate(self.document, strict=False)

    @property
    def types(self) -> dict[str, str]:
        """Sailor's name of the GPUs of each host."""
        ours = {card: name for name, card in TYPES.items()}
        return {n["name"]: ours[n["gpu"]] for n in self.document["cluster"]["nodes"]}


def imported(checkout: Path, name: str) -> Cluster:
    """Return a cluster as `hetopt import sailor` reads it."""
    counts = dict(zip(TYPES, CLUSTERS[name], strict=True))
    lines = [
        f"{kind[0].lower()}{i} slots={HOST} type={kind}\n"
        for kind, gpus in counts.items()
        for i in range(gpus // HOST)
    ]
    folder = checkout / "sailor" / "Planner" / "sailor_planner" / "profiles" / MODEL
    paths = [folder / kind / "profile.json" for kind, gpus in counts.items() if gpus]
    fits = ("multizone_bandwidths_het.json", "intra_node_bandwidths.json")
    with tempfile.TemporaryDirectory(prefix="hetopt-beside-") as place:
        hosts = Path(place) / "hosts"
        hosts.write_text("".join(lines), encoding="utf-8")
        document = profiles.read(
            paths,
            hostfile=hosts,
            memory_info=checkout / "sailor" / "Planner" / "llm_info.json",
            network=",".join(str(_providers(checkout) / fit) for fit in fits),
            types=",".join(f"{kind}:{card}" for kind, card in TYPES.items()),
            name=MODEL,
            sequence_length=SEQUENCE,
            global_batch=BATCH,
            precision="fp32",
            reserve_mib=RESERVE_MIB,
            **SHAPE,
        )
    made = Instance.model_validate(document, strict=False)
    return Cluster(name, made.model_dump(mode="json"))


def _providers(checkout: Path) -> Path:
    return checkout / "sailor" / "providers"


# --- what Sailor's simulator counts, in our settings ---------------------------------


def rates(checkout: Path) -> dict[str, float]:
    """GB/s that one GPU of each card gets to another host, by Sailor's fits."""
    text = (_providers(checkout) / "multizone_bandwidths_het.json").read_text()
    fits, x = json.loads(text)[ZONE], math.log2(MESSAGE_MB)
    found = {}
    for kind, card in TYPES.items():
        (a, b, c), cap = fits[kind]["1"][ZONE][kind]["1"]
        found[card] = min(a * x * x + b * x + c, cap / 1e9)
    return found


def counted(
    cluster: Cluster, degrees: dict[str, int], one_gpu: dict[str, float]
) -> Instance:
    """Return a cluster as Sailor's simulator counts it; `degrees` are those of cards.

    Each group is a node of its own, as replicas of a host do not share its links there.
    A link of t GPUs has t times the rate of one, and a ring of t groups that of one.
    """
    document: Document = json.loads(json.dumps(cluster.document))
    document["cluster"]["nodes"] = [
        {
            "name": f"{host['name']}.{part}",
            "gpu": host["gpu"],
            "count": degrees[host["gpu"]],
            "intra_gbytes_per_s": 1000.0,
            "adapters": round(WHOLE / one_gpu[host["gpu"]]),
        }
        for host in cluster.document["cluster"]["nodes"]
        for part in range(HOST // degrees[host["gpu"]])
    ]
    document["cluster"]["inter"] = {"gbytes_per_s": WHOLE, "latency_us": 0}
    costs = document["workload"]["costs"]
    costs["sync"] = "bottleneck"
    costs["profile"] = [
        {name: value for name, value in row.items() if name != "update_us"}
        for row in costs["profile"]
        if row["tensor_parallel"] == degrees[row["gpu"]]
    ]
    return Instance.model_validate(document, strict=False)


def on_hosts(plan: TrainingPlan, degrees: dict[str, int], cluster: Cluster) -> Any:
    """Return a plan of `counted` as one of the cluster: its groups are on hosts."""
    cards = {n["name"]: n["gpu"] for n in cluster.document["cluster"]["nodes"]}

    def renamed(gpu: str) -> str:
        node, index = gpu.split(":")
        host, part = node.split(".")
        return f"{host}:{int(part) * degrees[cards[host]] + int(index)}"

    document = plan.model_dump(mode="json")
    for replica in _replicas(document):
        replica["gpus"] = [renamed(gpu) for gpu in replica["gpus"]]
    return TrainingPlan.model_validate(document, strict=False)


def _replicas(document: Document) -> Iterator[Document]:
    for pipeline in document["pipelines"]:
        for stage in pipeline["stages"]:
            yield from stage["replicas"]


# --- Sailor's simulator ---------------------------------------------------------------


class Entry(NamedTuple):
    """A pipeline of Sailor's: its stages' replicas, as (type, degree)."""

    layers: tuple[tuple[int, int], ...]
    size: int
    stages: tuple[tuple[tuple[str, int], ...], ...]
    micro_batches: int

    @property
    def document(self) -> Document:
        """As Sailor's files have it."""
        return {
            "num_stages": len(self.layers),
            "layers_per_stage": [list(range(*span)) for span in self.layers],
            "tmp_per_stage": [
                [[[[kind, HOST, ZONE]], t] for kind, t in row] for row in self.stages
            ],
            "dp": [len(row) for row in self.stages],
        }


def entries(plan: TrainingPlan, types: dict[str, str]) -> list[Entry]:
    """Return a plan's pipelines as Sailor's; those that are cut alike are one."""
    found = []
    for pipeline in plan.pipelines:
        replicas = {len(stage.replicas) for stage in pipeline.stages}
        if len(replicas) > 1 or pipeline.micro_batch_size % (d := replicas.pop()):
            raise ValueError("stages of different numbers of replicas")
        rows = tuple(
            tuple((types[r.gpus[0].split(":")[0]], len(r.gpus)) for r in stage.replicas)
            for stage in pipeline.stages
        )
        spans = tuple(
            (first, last) for first, last in (s.layers for s in pipeline.stages)
        )
        size = pipeline.micro_batch_size // d
        found.append(Entry(spans, size, rows, pipeline.micro_batches))
    if len({entry[:2] for entry in found}) > 1:
        return found
    together = tuple(
        tuple(one for row in rows for one in row)
        for rows in zip(*(entry.stages for entry in found), strict=True)
    )
    most = max(entry.micro_batches for entry in found)
    return [found[0]._replace(stages=together, micro_batches=most)]


class Simulator:
    """Sailor's simulator, imported from a checkout."""

    def __init__(self, checkout: Path) -> None:
        """Import it; what it imports and does not need here may be missing."""
        for name in ("torch", "pandas"):
            with contextlib.suppress(ImportError):
                import_module(name)
            sys.modules.setdefault(name, ModuleType(name))
        sys.path.insert(0, str(checkout))
        self._module: Any = import_module(
            "sailor.Planner.simulations.runtime_simulator"
        )
        folder = checkout / "sailor" / "Planner"
        configs = folder / "simulations" / "configs"
        self._training = _json(configs / "training_config_opt_350.json")
        self._model = _json(folder / "llm_info.json")
        self._profiles = _json(folder / "simulations" / "profiles_tmp.json")
        self._checkout = checkout

    @cached_property
    def _simulator(self) -> Any:
        # It looks for its files in sailor/sailor of a folder.
        with tempfile.TemporaryDirectory(prefix="hetopt-beside-") as place:
            (Path(place) / "sailor").symlink_to(self._checkout.resolve())
            return self._module.Simulator(
                *(place, self._training, self._model, False, self._profiles, ZONE)
            )

    def seconds(self, found: Sequence[Entry]) -> float | None:
        """Return the time of an iteration; None where it does not fit its memory."""
        document = {
            "pipeline_list": [entry.document for entry in found],
            "mbs": found[0].size,
        }
        with contextlib.redirect_stdout(io.StringIO()):
            simulator = self._simulator
            if not simulator.check_config_fits(document):
                return None
            plan = self._module.convert_homogeneous(document, self._training)
            # It shares the batch equally; each pipeline has its own share here.
            passes = max(
                simulator.get_time_per_pipeline(
                    *(pipeline, entry.size, *self._times(entry.size)),
                    simulator.activation_sizes_per_layer,
                    entry.micro_batches,
                )
                for pipeline, entry in zip(plan.pipeline_list, found, strict=True)
            )
            return float(passes + simulator.estimate_sync_time(plan))

    def _times(self, size: int) -> list[Document]:
        """Return forward, backward and update times by type, degree and layer."""
        rows = {
            kind: {int(t): [*layers.values()] for t, layers in sizes[str(size)].items()}
            for kind, sizes in self._profiles[MODEL].items()
            if str(size) in sizes
        }
        return [
            {
                kind: {t: [layer[k] for layer in layers] for t, layers in some.items()}
                for kind, some in rows.items()
            }
            for k in range(3)
        ]


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


# --- rows -----------------------------------------------------------------------------


class Found(NamedTuple):
    """A plan of the cluster, who made it, and the CPU seconds that it took."""

    planner: str
    plan: TrainingPlan | None
    seconds: float


def plans(cluster: Cluster, checkout: Path, limit: float) -> Iterator[Found]:
    """Yield the plans of hetopt in both models, then those of its planners in ours."""
    began = time.process_time()
    result = hetopt.plan(cluster.instance, limits=limit)
    yield Found("hetopt, our model", result.plan, time.process_time() - began)
    began = time.process_time()
    plan = counted_plan(cluster, rates(checkout), limit)
    yield Found("hetopt, their model", plan, time.process_time() - began)
    for name in PLANNERS:
        began = time.process_time()
        with contextlib.suppress(hetopt.HetoptError):
            result = hetopt.plan(cluster.instance, planner=name, limits=limit)
            yield Found(name, result.plan, time.process_time() - began)


def counted_plan(
    cluster: Cluster, one_gpu: dict[str, float], limit: float
) -> TrainingPlan | None:
    """Return the best plan of the cluster as Sailor's simulator counts it."""
    cards = sorted({node["gpu"] for node in cluster.document["cluster"]["nodes"]})
    pairs = list(product(DEGREES, repeat=len(cards)))
    best: tuple[float, TrainingPlan] | None = None
    for pair in pairs:
        degrees = dict(zip(cards, pair, strict=True))
        data = counted(cluster, degrees, one_gpu)
        result = hetopt.plan(data, planner="islands", limits=limit / len(pairs))
        us = result.objective
        if result.plan is not None and us is not None and (not best or us < best[0]):
            best = float(us), on_hosts(result.plan, degrees, cluster)
    return None if best is None else best[1]


def rows(
    name: str, checkout: Path, folder: Path | None, limit: float
) -> Iterator[Document]:
    """Yield a row of each planner on a cluster."""
    cluster, simulator = imported(checkout, name), Simulator(checkout)
    data = cluster.instance
    for found in plans(cluster, checkout, limit):
        yield {
            **{"cluster": name, "planner": found.planner, "limit_s": limit},
            **{"cpu_s": round(found.seconds, 1)},
            **judged(data, cluster, simulator, found.plan),
        }
    if folder is not None:
        claim = next(iter(sailor_plan.claims(folder / f"{name}.json", data)))
        yield {
            **{"cluster": name, "planner": "Sailor", "limit_s": limit},
            **{"cpu_s": SAILOR[name][0]},
            **judged(data, cluster, simulator, claim.plan),
        }


def judged(
    data: Instance, cluster: Cluster, simulator: Simulator, plan: TrainingPlan | None
) -> Document:
    """Say what both models make of a plan; None where it is not valid, or none."""
    if plan is None:
        return {"ours_s": None, "theirs_s": None}
    found = training_plan.evaluate(data, plan)
    us = found.objective
    try:
        theirs = simulator.seconds(entries(plan, cluster.types))
    except (ValueError, KeyError):  # it has no words, or no times, for such a plan
        theirs = None
    ours = None if found.violations or us is None else float(us) / 1e6
    return {"ours_s": ours, "theirs_s": theirs}


# --- the page -------------------------------------------------------------------------

HEAD = """# Beside Sailor's planner

Made by `python benchmarks/beside.py --sailor CHECKOUT`: OPT-350M, fp32, 1,024 sequences
per iteration, by Sailor's profiles, network and memory. Seconds per iteration by our
judge and by Sailor's simulator; less is better, and each model's best is bold. *Our
model* and *their model* are what hetopt planned in; a dash: not valid there, or no
plan. Sailor's own plans were judged by its simulator when its planner (cf2c8e3) was run
for this comparison. The other planners are ours, written by the papers, in our model.
"""


def write_page() -> None:
    """Write the page from the latest rows of each cluster."""
    found: dict[tuple[str, str], Document] = {}
    for line in (RESULTS / LINES).open(encoding="utf-8"):
        row = json.loads(line)
        found[row["cluster"], row["planner"]] = row
    text = [HEAD]
    for name, (fast, slow) in CLUSTERS.items():
        mine = [row for (cluster, _), row in found.items() if cluster == name]
        if not mine:
            continue
        if not any(row["planner"] == "Sailor" for row in mine):
            cpu, theirs = SAILOR[name]
            told = {"planner": "Sailor", "cpu_s": cpu, "theirs_s": theirs}
            mine.append({**told, "ours_s": None})
        least = {
            key: min((row[key] for row in mine if row[key]), default=None)
            for key in ("ours_s", "theirs_s")
        }
        gpus = f"{fast} A100" + (f" and {slow} V100" if slow else "")
        text.append(f"## {gpus}\n")
        headers = ("planner", "CPU s", "our judge, s", "Sailor's simulator, s")
        cells = (
            [
                row["planner"],
                f"{row['cpu_s']:.1f}",
                *(_cell(row[key], least[key]) for key in least),
            ]
            for row in mine
        )
        text += [*grid(headers, cells), ""]
    publish(PAGE, "\n".join(text), LINES)


def _cell(seconds: float | None, least: float | None) -> str:
    if seconds is None:
        return "–"
    return f"**{seconds:.3f}**" if seconds == least else f"{seconds:.3f}"


def main() -> None:
    """Run the clusters that were asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sailor", type=Path, help="a checkout of Sailor")
    parser.add_argument("--plans", type=Path, help="plans of its planner")
    parser.add_argument("--limit", type=float, default=10, help="CPU seconds of a plan")
    parser.add_argument("--only", choices=CLUSTERS, help="one cluster")
    parser.add_argument("--page", action="store_true", help="only write the page")
    asked = parser.parse_args()
    if not asked.page:
        if asked.sailor is None:
            parser.error("--sailor CHECKOUT is needed: its profiles are not ours")
        # Limits are of the wall clock, and a busy machine gives a part of it.
        time.monotonic = time.process_time
        for name in [asked.only] if asked.only else CLUSTERS:
            for row in rows(name, asked.sailor, asked.plans, asked.limit):
                keep(LINES, row)
                print(row, flush=True)
    write_page()


if __name__ == "__main__":
    main()
