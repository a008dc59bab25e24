"""Modules of tools are found by what they have, those of other packages too."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from exporter_plans import EVEN, MIXED, instance

from hetopt import formats, registry
from hetopt.errors import InstanceError, UnknownName
from hetopt.formats import exporting


def export(data: Any, plan: Any, *, colour: str = "red") -> dict[str, str]:
    return {"plan.txt": f"{colour} {len(plan.pipelines)}\n"}


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Add an exporter of another package, as an entry point would."""
    mine = {
        "mine": SimpleNamespace(export=export, OPTIONS={"colour": str}, __name__="mine")
    }
    own, entry = registry.names, registry.entry
    monkeypatch.setattr(registry, "names", lambda folder: [*own(folder), *mine])
    monkeypatch.setattr(
        registry, "entry", lambda folder, name: mine.get(name) or entry(folder, name)
    )
    formats._of_tool.cache_clear()
    yield
    formats._of_tool.cache_clear()


@pytest.mark.usefixtures("added")
def test_a_tool_of_another_package_is_exported_to_and_explained() -> None:
    rows = {row["name"]: row for row in exporting.explain(instance(), EVEN)}
    assert rows["mine"]["tool"] == "mine"
    assert rows["mine"]["oldest"] is None
    assert rows["mine"]["reasons"] == []
    files = exporting.export_plan("mine", instance(), EVEN, ["colour=blue"])
    assert files == {"plan.txt": f"blue {len(EVEN.pipelines)}\n"}
    with pytest.raises(UnknownName, match="size"):
        exporting.export_plan("mine", instance(), EVEN, ["size=3"])


def test_the_tool_of_the_readme_keeps_the_contract() -> None:
    text = Path(formats.__path__[0], "README.md").read_text(encoding="utf-8")
    code = text.rpartition("```python\n")[2].partition("```")[0]
    module: dict[str, Any] = {"__name__": "readme"}
    exec(compile(code, "README.md", "exec"), module)
    files = module["export"](instance(), EVEN)
    nodes = {replica.node for replica in EVEN.replicas()}
    assert {line.split()[0] for line in files["hosts.txt"].splitlines()} == nodes


ALLOCATORS = ("jobset", "kueue", "ray", "skypilot", "slurm")


@pytest.mark.parametrize("target", ALLOCATORS)
def test_each_option_of_a_scheduler_is_held_to_its_word(target: str) -> None:
    for name in exporting.target_named(target).options:
        with pytest.raises(InstanceError, match=rf"\b{name}: ") as error:
            exporting.export_plan(target, instance(), MIXED, [f"{name}=a'\n$(b)"])
        assert "expected" in str(error.value)
