"""`hetopt report`: what an issue needs, in one file; node names are replaced."""

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import Unsupported
from ..text.documents import Document
from . import output
from .options import AsJson, flag

_NAMED = "reported"


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(report)


def report(
    file: Annotated[
        str,
        typer.Argument(help="A plan file or result; else an instance, or its name."),
    ],
    keep_names: Annotated[
        bool, flag("--keep-names", help="Keep the names of nodes and of the instance.")
    ] = False,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Write the report here.")
    ] = Path("report.json"),
    as_json: AsJson = False,
) -> None:
    """Pack an instance, its plan and all versions into a file for an issue.

    With a plan it is a plan file, which every command reads. Nodes are renamed, and
    the instance's name and source are left out; the rest (model, cards, links,
    workload, prices) stays as it was, so read the file before you publish it.

    Examples: `hetopt report plan.json`; `hetopt report my-cluster.yaml --out r.json`
    """
    from ..text.writing import write_json

    output.check_writable(out)
    document = _packed(file, keep_names=keep_names)
    failed = output.written(out, lambda path: write_json(path, document))
    versions = document["versions"]
    rows = [
        ("hetopt", versions["hetopt"]),
        ("Python", f"{versions['python']}, {versions['platform']}"),
        ("problem", document["problem"]),
        ("plan", "with its evaluation" if "plan" in document else "none"),
        ("names", "kept" if keep_names else "of nodes and instance replaced"),
    ]
    table = output.table(("packed", ""), rows, texts=("packed", ""))
    output.give(document, [table], failed, as_json=as_json)


def _packed(file: str, *, keep_names: bool) -> Document:
    """Return the report; that the plan is judged alike under new names is checked."""
    from .. import files, problems
    from .doctor import findings
    from .doctor import report as examination

    name, data, plan = _read(file)
    given: Document = {"instance": data.model_dump(mode="json")}
    if plan is not None:
        given["plan"] = plan.model_dump(mode="json")
    if not keep_names:
        given = _renamed(given)
    given["problem"] = name
    if plan is not None:
        before = problems.get(name).evaluate(data, plan)
        read = files.plan_of(given)
        after = problems.get(name).evaluate(read[1], read[2])
        if after.objective != before.objective:
            raise Unsupported(
                f"{file}: renaming nodes would change how the plan is judged; add "
                "--keep-names"
            )
        given["evaluation"] = after.to_json()
    versions = examination(findings()) | {"platform": platform.platform()}
    return given | {"versions": versions}


def _read(file: str) -> tuple[str, Any, Any]:
    """Return problem, data and plan of a plan file; without one, of an instance."""
    from .. import files
    from ..text.parsing import read_tree

    path = Path(file)
    if not path.is_file():
        return "training_plan", files.load_instance(file), None
    if read_tree(path).get("plan") is not None:
        return files.load_plan(path)
    return *files.load_problem(path), None


def _renamed(given: Document) -> Document:
    """Return the document with nodes `n0`, `n1`, ...; a card's name is none of them."""
    instance = given["instance"]
    cluster = instance.get("cluster") or {}
    cards = set(cluster.get("gpus") or {})
    nodes = [node["name"] for node in cluster.get("nodes") or []]
    new = {old: f"n{i}" for i, old in enumerate(nodes) if old not in cards}
    renamed: Document = _replaced(given, new)
    if "name" in instance:
        renamed["instance"]["name"] = _NAMED
    if "source" in instance:
        renamed["instance"]["source"] = ""
    return renamed


def _replaced(value: object, new: Mapping[str, str]) -> Any:
    """Return the value with every text that names a node, or a GPU of it, replaced."""
    if isinstance(value, dict):
        return {_replaced(k, new): _replaced(v, new) for k, v in value.items()}
    if isinstance(value, list):
        return [_replaced(one, new) for one in value]
    if not isinstance(value, str):
        return value
    node, colon, index = value.rpartition(":")
    if value in new:
        return new[value]
    return f"{new[node]}:{index}" if colon and node in new else value
