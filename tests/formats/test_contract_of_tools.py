"""Every module of a tool keeps the contract, and the registry says what breaks it."""

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from exporter_plans import EVEN, MIXED, instance

from hetopt import formats, registry
from hetopt.errors import InstanceError, PluginBroken, UnknownName
from hetopt.formats import contract, exporting

MODULES = [
    pytest.param(module, function, id=name)
    for function, modules in (
        ("import", formats.importers()),
        ("export", formats.exporters()),
    )
    for name, module in modules.items()
]


@pytest.mark.parametrize(("module", "function"), MODULES)
def test_every_module_keeps_the_contract(module: Any, function: str) -> None:
    if function == "import":
        function = "claims" if isinstance(module, contract.PlanReader) else "read"
    assert contract.faults(module, function) == []


def test_trainers_and_lists_of_hosts_are_told_by_their_protocols() -> None:
    kinds = (contract.RunReader, contract.HostReader)
    found = [
        {name for name, x in formats.importers().items() if isinstance(x, kind)}
        for kind in kinds
    ]
    assert found == [
        {"megatron_plan", "torchtitan_plan", "transformers_plan"},
        {"amd_smi", "hostfile", "kuberay", "kubectl", "nvidia_smi", "sinfo"},
    ]


def export(data: Any, plan: Any, *, colour: str = "red") -> dict[str, str]:
    return {"plan.txt": f"{colour} {len(plan.pipelines)}\n"}


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ({"OPTIONS": {"size": int}}, "export takes 2 arguments and options (size)"),
        ({"OPTIONS": 3}, "OPTIONS is no mapping"),
        ({"refusals": lambda data: []}, "refusals takes 2 arguments"),
        ({"RULES": "nobody"}, "RULES is 'nobody', no target"),
        ({"WITHOUT": {"lora"}}, "WITHOUT has more than features"),
        ({"HELD": "1.0"}, "HELD is none of"),
        ({"export": "text"}, "export is no function"),
    ],
)
def test_what_breaks_the_contract_is_named(broken: dict[str, Any], why: str) -> None:
    module = SimpleNamespace(**{"export": export, "__name__": "mine", **broken})
    with pytest.raises(PluginBroken, match="mine: ") as error:
        contract.check(module, "export")
    assert why in str(error.value)


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Add exporters of other packages, as entry points would."""
    mine = {
        "mine": SimpleNamespace(export=export, OPTIONS={"colour": str}),
        "bad": SimpleNamespace(export=export, OPTIONS={"size": int}, __name__="bad"),
    }
    own, entry = registry.names, registry.entry
    monkeypatch.setattr(registry, "names", lambda folder: [*own(folder), *mine])
    monkeypatch.setattr(
        registry, "entry", lambda folder, name: mine.get(name) or entry(folder, name)
    )
    for module in mine.values():
        module.__dict__.setdefault("__name__", "mine")
    formats._of_tool.cache_clear()
    yield
    formats._of_tool.cache_clear()


@pytest.mark.usefixtures("added")
def test_a_tool_of_another_package_is_exported_to_and_explained() -> None:
    with pytest.warns(UserWarning, match="bad: export takes 2 arguments"):
        rows = {row["name"]: row for row in exporting.explain(instance(), EVEN)}
    assert rows["mine"]["tool"] == "mine"
    assert rows["mine"]["oldest"] is None
    assert rows["mine"]["reasons"] == []
    assert "bad" not in rows
    files = exporting.export_plan("mine", instance(), EVEN, ["colour=blue"])
    assert files == {"plan.txt": f"blue {len(EVEN.pipelines)}\n"}
    with pytest.raises(UnknownName, match="size"):
        exporting.export_plan("mine", instance(), EVEN, ["size=3"])


def test_the_tool_of_the_readme_keeps_the_contract() -> None:
    text = Path(formats.__path__[0], "README.md").read_text(encoding="utf-8")
    code = text.rpartition("```python\n")[2].partition("```")[0]
    module: dict[str, Any] = {"__name__": "readme"}
    exec(compile(code, "README.md", "exec"), module)
    assert contract.faults(SimpleNamespace(**module), "export") == []
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


def test_no_format_of_ours_is_warned_of() -> None:
    """A module that has a hook's name by chance would be taken for a broken tool."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in ("importer", "exporter"):
            assert len(formats._all(kind)) > 10
