"""The instances and plans that the server holds, and the plan in the making."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from secrets import token_hex
from threading import Lock

import hetopt

from .. import files
from ..api.calling import Place
from ..api.judging import no_plan_is_shorter, posed_training
from ..api.starts import known_of
from ..explaining import simulator
from ..modelling import Limits
from ..plans import TrainingPlan
from ..report import figures, plans, results, timeline, words, writers
from ..result import Method, Result, Status, Stop, known_gap
from ..schema import Instance
from ..text.complaints import validated
from ..text.documents import Document
from ..text.parsing import read_tree
from .job import Job

EXPLAIN_S = 3.0  # of searches for changes that would help: who asked waits


class Refusal(Exception):
    """A request that is not done: the status code that says why, and a message."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


@dataclass
class Laid:
    """An instance, what no plan is shorter than, and the plan that is shown of it."""

    instance: Instance
    bound: int
    plan: str | None = None


@dataclass(frozen=True)
class Shown:
    """A plan of an instance, judged; `document` is a planner's result."""

    digest: str
    plan: TrainingPlan
    objective: int | None
    board: Document
    document: Document | None = field(default=None, repr=False)


@cache
def examples() -> dict[str, str]:
    """Return the library's instances with a cluster, each with a sentence about it."""
    trees = {n: read_tree(files.path_of_known(n)) for n in files.instance_names()}
    own = {n: x for n, x in trees.items() if "cluster" in x}
    return {
        n: _sentence(x) for n, x in own.items() if "generation" not in x["workload"]
    }


def _sentence(tree: Document) -> str:
    """Say which cards train which model, and whose instance that is."""
    gpus: Counter[str] = Counter()
    for node in tree["cluster"]["nodes"]:
        gpus[node["gpu"]] += node["count"]
    held = ", ".join(f"{count} {gpu}" for gpu, count in gpus.items())
    model = tree["model"].get("name") or tree["model"]["preset"]
    return f"{held} train {model}. {tree['source'].partition(';')[0]}."


class Desk:
    """All that the server knows."""

    def __init__(self, time_limit: float) -> None:
        self.time_limit = time_limit
        self.laid: dict[str, Laid] = {}
        self.plans: dict[str, Shown] = {}
        self.job: Job | None = None
        self.current: str | None = None  # digest of the instance last asked for
        self._drawing = Lock()

    def state(self) -> Document:
        """Return what a page that is opened anew begins with."""
        shown = board = job = None
        if self.current is not None:
            laid = self.laid[self.current]
            shown = self._instance(laid)
            board = None if laid.plan is None else self.view(laid.plan)
            if self.job is not None and self.job.digest == self.current:
                job = self.job.id
        found = {"instance": shown, "board": board, "job": job}
        return {**found, "time_limit": self.time_limit}

    # -- instances ---------------------------------------------------------------

    def open_named(self, name: str) -> Document:
        """Open an instance of the library."""
        files.path_of_known(name)
        return self.open(name)

    def open(self, given: Place | Instance | Document) -> Document:
        """Put an instance on the desk, of a plan file with its plan, and show it."""
        tree = given
        if isinstance(given, str | Path) and Path(given).is_file():
            tree = read_tree(Path(given))
        plan = None
        has_plan = isinstance(tree, Mapping) and tree.get("plan") is not None
        if has_plan and not isinstance(given, Instance):
            instance, plan = posed_training(given)
        else:
            instance = hetopt.load(given)
        _ = instance.planned_cluster
        if instance.workload.generation is not None:
            told = "it generates, too: `hetopt plan` says which GPUs train and generate"
            raise Refusal(400, "unsupported", told)
        digest = instance.digest
        if digest not in self.laid:
            least = [no_plan_is_shorter(instance)]
            if (proved := known_of(instance).bound(instance)) is not None:
                least.append(proved)
            self.laid[digest] = Laid(instance, max(int(one.value) for one in least))
        self.current = digest
        shown = self._instance(self.laid[digest])
        if plan is not None:
            shown["board"] = self.put(digest, plan)
        return shown

    def find(self, digest: str) -> Laid:
        """Return the instance of a digest; a refusal where it is not here."""
        if digest not in self.laid:
            raise _gone("instance", digest)
        return self.laid[digest]

    def _instance(self, laid: Laid) -> Document:
        instance = laid.instance
        cluster, work = instance.planned_cluster, instance.workload
        alike = Counter(f"{node.count} × {node.gpu}" for node in cluster.nodes)
        return {
            "digest": instance.digest,
            "name": instance.name,
            "source": instance.source,
            "gpus": cluster.gpu_count,
            "nodes": [f"{words.counted(n, 'node')} of {x}" for x, n in alike.items()],
            "layers": instance.model.layers,
            "parameters": instance.model.total_parameters,
            "global_batch": work.global_batch,
            "sequence_length": work.sequence_length,
            "bound_us": laid.bound,
        }

    # -- plans -------------------------------------------------------------------

    def put(
        self, digest: str, plan: TrainingPlan, document: Document | None = None
    ) -> Document:
        """Judge a plan of an instance, put it on the desk, and show it."""
        laid = self.find(digest)
        judged = hetopt.check(plan, laid.instance)
        objective = judged.objective
        table = results.table(laid.instance, plan, judged.parts)
        board = {
            "objective_us": objective,
            "valid": judged.valid,
            "headings": [*(table.headings if table else ())],
            "rows": [[x.text for x in row] for row in (table.rows if table else ())],
            "totals": [*results.totals(judged.parts)],
            "problems": results.problems(judged.violations),
            "warnings": list(judged.warnings),
        }
        laid.plan = token_hex(8)
        us = None if objective is None else int(objective)
        self.plans[laid.plan] = Shown(digest, plan, us, board, document)
        return self.view(laid.plan)

    def view(self, name: str) -> Document:
        """Return a plan as the page shows it, with its distance from what is proved."""
        shown = self._shown(name)
        bound, valid = self.find(shown.digest).bound, shown.board["valid"]
        return {
            **{"id": name, "instance": shown.digest, **shown.board, "bound_us": bound},
            "gap": known_gap(shown.objective, bound) if valid else None,
        }

    def plan_file(self, name: str) -> Document:
        """Return a file that `hetopt check` takes: a planner's result, or the plan."""
        shown = self._shown(name)
        instance = self.find(shown.digest).instance
        return shown.document or {
            "problem": "training_plan",
            "instance": instance.model_dump(mode="json"),
            "digest": instance.digest,
            "plan": shown.plan.model_dump(mode="json"),
        }

    def picture(self, name: str) -> bytes:
        """Return the drawing of a plan that keeps all rules, as PNG."""
        instance, plan = self._posed(name)
        by, state = Method("the page", "given"), (Status.FEASIBLE, Stop.FINISHED)
        found = Result("training_plan", instance, by, *state, plan)
        with self._drawing:
            return figures.picture(plans.figure(found, "").draw, "png")

    def timeline(self, name: str) -> str:
        """Return the page of a plan's timeline, pass by pass, as of `simulate`."""
        posed = self._posed(name)
        timeline.check_size(found := simulator.simulate(*posed))
        with self._drawing:
            return writers.page(found.sheet())

    def explain(self, name: str) -> str:
        """Return the page of `hetopt explain`: where time goes, and what would help."""
        instance, plan = self._posed(name)
        found = hetopt.explain(plan, instance, limits=Limits(time_s=EXPLAIN_S))
        with self._drawing:
            return writers.page(found.sheet())

    def _shown(self, name: str) -> Shown:
        if name not in self.plans:
            raise _gone("plan", name)
        return self.plans[name]

    def _posed(self, name: str) -> tuple[Instance, TrainingPlan]:
        shown = self._shown(name)
        return self.find(shown.digest).instance, shown.plan

    # -- the one in the making ---------------------------------------------------

    def begin(self, digest: str, time_limit: float) -> Job:
        """Start a plan from the best on this page; a refusal while one is made."""
        laid = self.find(digest)
        if self.job is not None and not self.job.ended:
            told = "a plan is in the making: stop it, or wait for it"
            raise Refusal(409, "busy", told)
        mine = (x for x in self.plans.values() if x.digest == digest)
        valid = [(one.objective or 0, one.plan) for one in mine if one.board["valid"]]
        start = min(valid, key=lambda pair: pair[0], default=(0, None))[1]
        self.job = Job(laid.instance, time_limit, start, self._finished)
        self.current = digest
        return self.job

    def job_of(self, job: str) -> Job:
        """Return the job of that name, which is the last one."""
        if self.job is None or self.job.id != job:
            raise _gone("plan in the making", job)
        return self.job

    def close(self) -> None:
        """End what is in the making."""
        if self.job is not None:
            self.job.kill()

    def _finished(self, digest: str, document: Document | None) -> Document:
        """Put the plan of a job on the desk; what the page says of the search."""
        if document is None:
            return {"status": "undecided", "stop": "interrupted", "reasons": []}
        names = ("status", "stop", "objective", "bound", "gap", "reasons")
        told = {name: document[name] for name in names}
        laid = self.find(digest)
        if document["bound"] is not None:
            laid.bound = max(laid.bound, int(document["bound"]))
        if document["plan"] is not None:
            plan = validated(TrainingPlan, document["plan"], "the planner's plan")
            told["board"] = self.put(digest, plan, document)
        return told


def _gone(what: str, name: str) -> Refusal:
    told = f"found {what} {name[:40]!r}, which this server does not have; make it again"
    return Refusal(404, "gone", told)
