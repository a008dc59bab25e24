"""JobSet and Kueue: what is exported against their own schemas.

`CRDS` names a folder of their custom resource definitions, as they lie in the sources
(`config/.../bases/*.yaml`). As an API server does in its strict mode, fields that a
schema does not know are refused, too; so are versions that are deprecated, and kinds
that no definition in the folder has.
"""

import os
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import yaml
from exporter_plans import EVEN, MIXED, UNEVEN, instance

from hetopt.formats import exporting
from hetopt.plans import TrainingPlan

pytestmark = pytest.mark.targets

Schemas = dict[tuple[str, str], dict[str, Any]]  # by version of the API, and kind


@pytest.fixture(scope="module")
def schemas() -> Schemas:
    folder = os.environ.get("CRDS")
    if folder is None or util.find_spec("jsonschema") is None:
        pytest.skip("CRDS names no folder of definitions, or jsonschema is missing")
    found: Schemas = {}
    for path in sorted(Path(folder).glob("*.yaml")):
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
        for version in spec["versions"]:
            if version.get("deprecated") or not version["served"]:
                continue
            api = f"{spec['group']}/{version['name']}"
            schema = version["schema"]["openAPIV3Schema"]
            found[api, spec["names"]["kind"]] = strict(schema)
    return found


def strict(schema: Any) -> Any:
    """The schema with no further fields where it names some."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    loose = schema.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(schema.get("properties"), dict) and not loose:
        made.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
    return made


def documents(files: dict[str, str]) -> Iterator[dict[str, Any]]:
    for name, text in files.items():
        if name.endswith(".yaml"):
            for tree in yaml.safe_load_all(text):
                yield from tree["items"] if tree["kind"] == "List" else [tree]


def refused(files: dict[str, str], schemas: Schemas) -> list[str]:
    """What the schemas say of all objects."""
    from jsonschema import Draft4Validator

    found, trees = [], list(documents(files))
    assert trees
    for tree in trees:
        kind = tree["apiVersion"], tree["kind"]
        if kind not in schemas:
            found.append(f"{' '.join(kind)}: no such version of a definition")
            continue
        errors = Draft4Validator(schemas[kind]).iter_errors(tree)
        found += [f"{tree['kind']}: {error.message}" for error in errors]
    return found


@pytest.mark.parametrize("options", [(), ("restarts=2", "queue=mine", "name=r")])
@pytest.mark.parametrize("plan", [EVEN, UNEVEN, MIXED], ids=["even", "uneven", "mixed"])
@pytest.mark.parametrize("target", ["jobset", "kueue"])
def test_the_api_server_would_take_every_object(
    target: str, plan: TrainingPlan, options: tuple[str, ...], schemas: Schemas
) -> None:
    files = exporting.export_plan(target, instance(), plan, options)
    assert refused(files, schemas) == []
