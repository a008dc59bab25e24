"""The best that is known of the library: judged again, and replaced by better only."""

import json
import shutil
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from hetopt import files, problems
from hetopt.bench import child, journal, suites
from hetopt.bench.best import update
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.errors import BoundContradicted, InstanceError
from hetopt.files import best

NAME = "tiny/two-nodes"


@pytest.mark.parametrize("name", best.names())
def test_what_is_best_known_is_what_the_judge_finds(name: str) -> None:
    found = best.known(name)
    remedy = f"{name} has changed: `hetopt bench best --update-best` finds it anew"
    assert found is not None, remedy
    problem, data, plan = files.load_plan(best.place(name))
    assert (problem, found.digest) == (found.problem, data.digest)
    judged = problems.get(problem).evaluate(data, plan)
    assert judged.violations == ()
    assert judged.objective == found.value("objective")
    bound = found.value("bound")
    if bound is not None:
        value = Fraction(judged.objective)
        assert bound <= value if found.sense == "minimise" else bound >= value
        assert found.bound_source
        assert found.bound_by
    if problem == "training_plan" and bound is not None:
        assert bound >= training_plan_bound(data).value, "a weaker one than the cheap"


# --- what replaces what ------------------------------------------------------------


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A library with one instance, that may be written to."""
    folder = tmp_path / "library" / "tiny"
    folder.mkdir(parents=True)
    file = folder / "two-nodes.yaml"
    shutil.copy(files.path_of_known(NAME), file)
    monkeypatch.setattr(files, "_library", lambda: {NAME: file})
    best.known.cache_clear()
    yield folder
    best.known.cache_clear()


def run(
    folder: Path, method: str, certificate: dict[str, Any] | None = None, **changes: Any
) -> Path:
    """A folder with one row, as `hetopt bench` leaves it."""
    task = suites.Task(instance=NAME, method=method, wall_limit_s=60)
    answer = child.answered(task)
    header = {"suite": "mine", "tasks": 1, "started": "2026-01-02T03:04:05Z"}
    with journal.journal(folder, header, resume=False) as kept:
        document = answer["document"] | {"certificate": certificate}
        kept.add(answer["row"] | changes, document)
    return folder


def test_only_what_is_better_replaces_what_is_known(
    library: Path, tmp_path: Path
) -> None:
    quick, proof = run(tmp_path / "quick", "megatron"), run(tmp_path / "proof", "exact")
    (told,) = update(quick)
    assert told.endswith("the first known")
    first = best.known(NAME)
    assert first.found_by.method == "megatron"
    assert first.found_by.date == "2026-01-02"
    assert len([*update(proof)]) == 1
    second = best.known(NAME)
    assert second.objective == second.bound < first.objective
    assert second.bound_by.method == "exact"
    text = (library / "two-nodes.best.json").read_text()
    assert [*update(quick)] == []
    assert [*update(proof)] == []
    assert (library / "two-nodes.best.json").read_text() == text


def test_a_bound_as_strong_replaces_one_that_had_no_certificate(
    library: Path, tmp_path: Path
) -> None:
    bare = run(tmp_path / "bare", "exact")
    shown = run(tmp_path / "shown", "exact", {"by": 1})
    other = run(tmp_path / "other", "exact", {"by": 2})
    assert len([*update(bare)]) == 1
    (told,) = update(shown)
    assert told.endswith("now with a certificate")
    for later in (bare, other):
        assert [*update(later)] == []
    kept = best.known(NAME)
    assert kept.certificate == {"by": 1}
    weaker = run(tmp_path / "weaker", "exact", {"by": 3}, bound=kept.bound - 1)
    assert [*update(weaker)] == []


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"objective": 1, "bound": None}, InstanceError, "expected 1 and none"),
        ({"bound": 10**9}, BoundContradicted, "contradicts the plan"),
    ],
)
def test_a_row_that_is_not_its_plans_is_refused(
    changes: Any, error: Any, told: str, library: Path, tmp_path: Path
) -> None:
    folder = run(tmp_path / "run", "megatron", **changes)
    with pytest.raises(error, match=told):
        [*update(folder)]
    assert [path.name for path in library.iterdir()] == ["two-nodes.yaml"]


def test_a_best_of_other_data_is_not_the_best_of_this(
    library: Path, tmp_path: Path
) -> None:
    folder = run(tmp_path / "run", "exact")
    [*update(folder)]
    file = library / "two-nodes.best.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"digest": "sha256:0"}))
    best.known.cache_clear()
    assert best.known(NAME) is None
    (told,) = update(folder)
    assert told.endswith("the first known")


def test_a_best_that_is_none_says_what_is_wrong(library: Path) -> None:
    (library / "two-nodes.best.json").write_text('{"objective": 3}')
    with pytest.raises(InstanceError, match=r"best\.json: problem: missing"):
        best.known(NAME)
