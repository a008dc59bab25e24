"""The desk holds instances, plans of them, and the one plan in the making.

Nothing on it changes once it is there, and the oldest go when there is no room.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from secrets import token_hex
from typing import TypeVar

from .. import api
from ..api.starts import Known
from ..errors import HetoptError
from ..explaining import simulator
from ..modelling import Limits
from ..plans import TrainingPlan
from ..report import explanation, timeline, writers
from ..result import known_gap
from ..schema import Instance
from ..text.complaints import validated
from ..text.documents import Document
from . import board
from .building import Posed
from .job import Event, Job
from .refusals import refusal, told

T = TypeVar("T")
_MOST_INSTANCES, _MOST_PLANS = 50, 2000
EXPLAIN_S = 3.0  # of searches for changes that would help: who asked waits


@dataclass
class Laid:
    """An instance, and what its planner found: the last plan made, if there is one."""

    posed: Posed
    bound: int
    best: str | None = None  # the name of the planner's plan
    opened: str | None = None  # the name of the plan that its file had

    @property
    def instance(self) -> Instance:
        """The instance."""
        return self.posed.instance


@dataclass(frozen=True)
class Sheet:
    """A plan of an instance, judged and drawn."""

    name: str
    digest: str
    plan: TrainingPlan
    objective: int | None
    shown: Document
    document: Document | None = field(default=None, repr=False)  # of a planner

    def to_file(self, instance: Instance) -> Document:
        """A file that `hetopt check` takes: the planner's result, or the plan."""
        if self.document is not None:
            return self.document
        return {
            "problem": "training_plan",
            "instance": instance.model_dump(mode="json"),
            "digest": instance.digest,
            "plan": self.plan.model_dump(mode="json"),
        }


class Desk:
    """All that the server knows."""

    def __init__(self, time_limit: float) -> None:
        self.time_limit = time_limit
        self.laid: OrderedDict[str, Laid] = OrderedDict()
        self.sheets: OrderedDict[str, Sheet] = OrderedDict()
        self.job: Job | None = None
        self.current: str | None = None  # digest of the instance last asked for

    # -- instances ---------------------------------------------------------------

    def lay(self, posed: Posed) -> Document:
        """Put an instance on the desk; what the page shows of it."""
        digest = posed.instance.digest
        if digest not in self.laid:
            bounds = [api.no_plan_is_shorter(posed.instance)]
            if (proved := posed.known.bound(posed.instance)) is not None:
                bounds.append(proved)
            bound = max(int(one.value) for one in bounds)
            self.laid[digest] = Laid(posed, bound)
        self.laid.move_to_end(digest)
        self._make_room(self.laid, _MOST_INSTANCES)
        self.current = digest
        shown = self.shown(digest)
        if posed.plan is not None:
            shown["board"] = self.put(digest, posed.plan)
            self.laid[digest].opened = shown["board"]["id"]
        return shown

    def shown(self, digest: str) -> Document:
        """Return what the page shows of an instance."""
        laid = self.find(digest)
        return {**board.of_instance(laid.instance), "bound_us": laid.bound}

    def find(self, digest: str) -> Laid:
        """The instance of a digest; a refusal where it is not here any more."""
        if digest not in self.laid:
            raise _gone("instance", digest)
        return self.laid[digest]

    # -- plans -------------------------------------------------------------------

    def put(
        self,
        digest: str,
        plan: TrainingPlan,
        document: dict[str, object] | None = None,
    ) -> Document:
        """Judge a plan of an instance, and put it on the desk."""
        instance = self.find(digest).instance
        judged = api.check(plan, instance)
        objective = None if judged.objective is None else int(judged.objective)
        shown = board.of_plan(instance, plan, judged)
        sheet = Sheet(token_hex(8), digest, plan, objective, shown, document)
        self.sheets[sheet.name] = sheet
        self._make_room(self.sheets, _MOST_PLANS)
        return self.view(sheet.name)

    def view(self, name: str) -> Document:
        """A plan as the page shows it, with how far it is from what is proved."""
        sheet = self.sheet(name)
        bound = self.find(sheet.digest).bound
        valid = sheet.shown["valid"]
        return {
            "id": sheet.name,
            "instance": sheet.digest,
            **sheet.shown,
            "bound_us": bound,
            "gap": known_gap(sheet.objective, bound) if valid else None,
        }

    def picture(self, name: str) -> bytes:
        """Return the drawing of a plan that keeps all rules, as PNG."""
        sheet = self.sheet(name)
        return board.picture(self.find(sheet.digest).instance, sheet.plan)

    def timeline(self, name: str) -> str:
        """The page of a plan's timeline, pass by pass, as `hetopt simulate` has it."""
        sheet = self.sheet(name)
        instance = self.find(sheet.digest).instance
        found = simulator.simulate(instance, sheet.plan)
        timeline.check_size(found)
        return writers.page(timeline.sheet(found))

    def explain(self, name: str) -> str:
        """Return the page of `hetopt explain`: where time goes, and what would help."""
        sheet = self.sheet(name)
        instance = self.find(sheet.digest).instance
        limits = Limits(time_s=EXPLAIN_S)
        found = api.explain(sheet.plan, instance, limits=limits)
        return writers.page(explanation.sheet(found))

    def sheet(self, name: str) -> Sheet:
        """The plan of a name; a refusal where it is not here any more."""
        if name not in self.sheets:
            raise _gone("plan", name)
        return self.sheets[name]

    # -- the one in the making ---------------------------------------------------

    async def begin(self, digest: str, time_limit: float) -> Job:
        """Start a plan; a refusal while another one is in the making."""
        laid = self.find(digest)
        if self.job is not None and not self.job.ended:
            raise refusal(
                409,
                "busy",
                found="a plan in the making",
                expected="one at a time",
                remedy="stop it, or wait for it",
            )

        def finish(event: Event) -> Event:
            return self._finish(digest, event)

        job = self.job = Job(laid.instance, time_limit, finish, self._starts(laid))
        self.current = digest
        try:
            await job.start()
        except OSError:
            self.job = None
            raise
        return job

    def _starts(self, laid: Laid) -> list[tuple[str, TrainingPlan]]:
        """The fastest plan that is known of an instance, here or beside its file."""
        digest = laid.instance.digest
        mine = (one.plan for one in self.sheets.values() if one.digest == digest)
        here = tuple(("a plan on this page", plan) for plan in mine)
        known = Known((*here, *laid.posed.known.plans))
        return [(one.source, one.plan) for one in known.starts(laid.instance)[:1]]

    def job_of(self, job: str) -> Job:
        """The job of that name, which is the last one."""
        if self.job is None or self.job.id != job:
            raise _gone("plan in the making", job)
        return self.job

    def close(self) -> None:
        """End what is in the making."""
        if self.job is not None:
            self.job.kill()

    def _finish(self, digest: str, event: Event) -> Event:
        """The last event of a job: its plan on the desk, judged here once more."""
        document = event.pop("document")
        event["kind"] = "done"
        if document is None:
            return event | {"status": "undecided", "stop": "interrupted", "reasons": []}
        names = ("status", "stop", "objective", "bound", "bound_source", "gap")
        event |= {name: document[name] for name in (*names, "reasons")}
        event["method"] = document["method"]["name"]
        try:
            laid = self.find(digest)
            if document["bound"] is not None:
                laid.bound = max(laid.bound, int(document["bound"]))
            if document["plan"] is not None:
                plan = validated(TrainingPlan, document["plan"], "the planner's plan")
                shown = self.put(digest, plan, document)
                laid.best = shown["id"]
                event["board"] = shown
        except HetoptError as error:
            return {"kind": "error", **told(error)}
        return event

    def _make_room(self, things: "OrderedDict[str, T]", most: int) -> None:
        while len(things) > most:
            things.popitem(last=False)


def _gone(what: str, name: str) -> Exception:
    return refusal(
        404,
        "gone",
        field=what,
        found=repr(name[:40]),
        expected=f"{what} that this server still has",
        remedy="make it again: the page was served anew, or much was made since",
    )
