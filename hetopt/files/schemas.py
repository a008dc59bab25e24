"""JSON Schemas of the files that are ours, for editors and for other programs.

They are made from the records that check the files, and widened by what a file may say
in place of what a record holds: a preset for a model or for cost settings, a row for a
link, a file for a profile. A file that breaks its schema is refused; a file that keeps
it may still be refused, for a schema knows no sums across fields.
"""

from pydantic import TypeAdapter

from .. import problems
from ..catalogue import models
from ..errors import KINDS
from ..result import Proof, Status, Stop
from ..schema import PRESETS, Instance, Profile
from ..text.documents import Document
from ..text.marks import SCHEMA

Schema = Document
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> list[dict[str, object]]:
    """Rows of `name`, `description` and `schema`, one a file format of ours."""
    rows = [
        _row(
            "instance", "An instance: model, workload, cluster or offers.", instance()
        ),
        _row("profile", "Measured rows that workload.costs names.", _profile()),
        _row("plan", "A plan file: a plan and its instance.", plan_file()),
        _row("result", "The document of a command with --json or --out.", result()),
    ]
    rows.append(_row("error", "What --json prints in place of an answer.", error()))
    for name in problems.names():
        data = problems.get(name).Data
        if data is not Instance:
            made = _widen(data.model_json_schema())
            made["properties"]["schema"] = {"enum": [SCHEMA]}
            made["required"] = sorted({*made.get("required", ()), "problem"})
            rows.append(_row(name, f"A problem file of {name}.", made))
    return rows


def _row(name: str, description: str, schema: Schema) -> Document:
    whole = {"$schema": DRAFT, **schema, "title": name, "description": description}
    return {"name": name, "description": description, "schema": whole}


def instance() -> Schema:
    """An instance file; it may begin with the problem that it poses."""
    made = _widen(Instance.model_json_schema())
    made["properties"] |= {
        "problem": {"enum": _posed_by_instances()},
        "schema": {"enum": [SCHEMA]},
    }
    return made


def _posed_by_instances() -> list[str]:
    return [name for name in problems.names() if problems.get(name).Data is Instance]


def _profile() -> Schema:
    return TypeAdapter(list[Profile]).json_schema()


# --- plans and results -----------------------------------------------------------


def plan_file() -> Schema:
    """A plan of any problem, and the data that it was made for, by name or whole."""
    plans, defs = _plans()
    return {
        "$defs": defs,
        "type": "object",
        "properties": {
            "problem": {"enum": problems.names()},
            "schema": {"enum": [SCHEMA]},
            "instance": {"anyOf": [{"type": "string"}, {"type": "object"}]},
            "plan": {"anyOf": plans},
        },
        "required": ["plan"],
    }


def result() -> Schema:
    """Return the schema of what is known about a problem, a plan file, too."""
    plans, defs = _plans()
    number = _nullable("number")
    exactly = {"type": "array", "items": {"type": "integer"}, "minItems": 2}
    text = _nullable("string")
    method: dict[str, Schema] = {
        "name": {"type": "string"},
        "kind": {"enum": ["exact", "heuristic", "given"]},
        "formulation": text,
        "backend": text,
        "version": text,
        "seed": {"type": "integer"},
        "threads": {"type": "integer"},
    }
    of = _object(method)
    of["properties"]["options"] = {"type": "object"}  # where a planner was given some
    point: dict[str, Schema] = {
        "seconds": {"type": "number"},
        "incumbent": number,
        "bound": number,
    }
    fields: dict[str, Schema] = {
        "problem": {"enum": problems.names()},
        "instance": {"anyOf": [*text["anyOf"], {"type": "object"}]},
        "digest": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
        "status": {"enum": [one.value for one in Status]},
        "stop": {"enum": [one.value for one in Stop]},
        "sense": {"enum": ["minimise", "maximise"]},
        "objective": number,
        "bound": number,
        "bound_source": text,
        "gap": number,
        "unit": {"type": "string"},
        "method": of,
        "seconds": {"type": "object", "additionalProperties": {"type": "number"}},
        "evaluation": _nullable("object"),
        "plan": {"anyOf": [*plans, {"type": "null"}]},
        "reasons": {"type": "array", "items": {"type": "string"}},
        "trace": {"type": "array", "items": _object(point)},
    }
    made = _object(fields)
    made["properties"] |= {
        "schema": {"enum": [SCHEMA]},
        "objective_exact": exactly,
        "proof": {"enum": [*(one.value for one in Proof), None]},
        "bound_exact": exactly,
        "certificate": {"type": "object"},
        "failed": {"type": "array", "items": {"type": "string"}},
        "posed_by": {"type": "object"},  # of a plan of offers: their instance
        "started_from": {"type": "string"},  # where a plan known before was the start
        "run": {"type": "object"},  # with --tokens
        "nodes": {"type": "object"},  # with --objective
        "warnings": {"type": "array", "items": {"type": "string"}},
    }
    return {"$defs": defs, **made}


def error() -> Schema:
    """Return the schema of an error; absent is null. The exit code is the command's."""
    inner: dict[str, Schema] = {
        "kind": {"enum": KINDS},
        "message": {"type": "string"},
        "file": _nullable("string"),
        "field": _nullable("string"),
        "exit_code": {"enum": [1, 2, 4]},
    }
    return _object({"error": _object(inner)})


def _plans() -> tuple[list[Schema], Schema]:
    """The plans of all problems, and the definitions that they share."""
    kinds = {problems.get(name).Plan for name in problems.names()}
    ordered = sorted(kinds, key=lambda kind: str(kind.__name__))
    made, defs = TypeAdapter.json_schemas(
        [(kind.__name__, "validation", TypeAdapter(kind)) for kind in ordered]
    )
    return [dict(made[kind.__name__, "validation"]) for kind in ordered], dict(
        defs["$defs"]
    )


def _object(fields: dict[str, Schema]) -> Schema:
    return {
        "type": "object",
        "properties": dict(fields),
        "required": sorted(fields),
        "additionalProperties": False,
    }


def _nullable(kind: str) -> Schema:
    return {"anyOf": [{"type": kind}, {"type": "null"}]}


# --- what a file may say otherwise -----------------------------------------------


def _widen(schema: Schema) -> Schema:
    """A schema of records, made one of files."""
    defs = schema.get("$defs", {})
    if "Inter" in defs:
        pairs = defs["Inter"]["properties"]["pairs"]
        row = _link_row(defs["Link"]["properties"])
        pairs["items"] = {"anyOf": [pairs["items"], row]}
    if "CostSettings" in defs:
        name = {"type": "string", "description": "A file beside this one."}
        fields = defs["Compute"]["properties"]
        fields["profile"] = {"anyOf": [fields["profile"], name]}
        for fields in (one.get("properties", {}) for one in [schema, *defs.values()]):
            if "costs" in fields:
                preset = {"enum": sorted(PRESETS), "description": "A preset's name."}
                fields["costs"] = {"anyOf": [fields["costs"], preset]}
    if "ModelSpec" in defs and "model" in schema.get("properties", {}):
        spec = defs["ModelSpec"]
        named = [_model_by(spec, "preset", {"enum": sorted(models())})]
        named.append(_model_by(spec, "config", {"type": "string"}))
        schema["properties"]["model"] = {
            "anyOf": [schema["properties"]["model"], *named]
        }
    return schema


def _link_row(fields: Schema) -> Schema:
    """A link as a row; its numbers may have units as those of the fields."""
    rate, latency = (
        {"anyOf": fields[name]["anyOf"]} for name in ("gbytes_per_s", "latency_us")
    )
    return {
        "type": "array",
        "description": "[node, node, gbytes_per_s] or with latency_us as a fourth "
        "value.",
        "prefixItems": [{"type": "string"}, {"type": "string"}, rate],
        "items": latency,
        "minItems": 3,
        "maxItems": 4,
    }


def _model_by(spec: Schema, key: str, value: Schema) -> Schema:
    """A model by a preset or a configuration, whose fields may be given anew."""
    return {
        **spec,
        "title": f"model by {key}",
        "properties": {**spec["properties"], key: value},
        "required": [key],
    }
