"""Measured runs, as people have them: rows of ours, and logs of trainers.

`read` finds out which of `FORMS` a file is of; each module says what it reads. A log is
one run. What a file leaves out is given by the fields of a run (`gpu="h100_80gb"`) or
by further files (`configs`); where they tell something else than the file does, or than
each other, that is an error. What nobody tells is null.
"""

from collections.abc import Iterable
from pathlib import Path

from ...costs.runs.rows import Run
from ...errors import InstanceError, Place, naming
from ..documents import Document
from . import (
    deepspeed,
    logs,
    megatron,
    nemo,
    rows,
    torchtitan,
    trainer,
)
from .configs import Config, config
from .facts import Given, fields_of
from .source import Form, Measured, Size, Source

# A file is of the first form that takes it: those of other tools before our own.
FORMS: tuple[Form, ...] = (
    trainer.STATE,
    rows.TREE,
    rows.TABLE,
    torchtitan.FORM,
    megatron.FORM,
    deepspeed.FORM,
    nemo.FORM,
    trainer.LOG,
)


def read(path: Place, *, configs: Iterable[Place] = (), **fields: object) -> list[Run]:
    """Return the runs of a file, in its order.

    `configs` are files beside it: a model's `config.json`, a trainer's configuration.
    `fields` are those of a run that the files leave out, for every run of the file;
    texts are read as cells of a CSV file are. Raises `InstanceError` that names file,
    line or field, and both values where two sources differ.
    """
    source = Source(Path(path))
    given = _facts(configs, fields)
    with naming(source.path):
        form = _form(source)
        for one in given.configs:
            _belongs(one, form)
        return form.runs(source, given)


def measured(source: Source, size: Size) -> Measured | None:
    """Return what iterations of a size took by a log; None where it does not say it."""
    form = next((one for one in FORMS if one.is_one(source)), None)
    return None if form is None else form.measured(source, size)


def printed_config(source: Source) -> Document:
    """Return the configuration that a log prints as JSON; the last of several."""
    found: Document = {}
    for index, line in enumerate(source.lines):
        for mark in (torchtitan.CONFIG, deepspeed.CONFIG):
            if (start := line.text.find(mark)) >= 0:
                found = logs.printed_object(source, index, start + len(mark) - 1)
    return found


def is_log(source: Source) -> bool:
    """Return whether a file is the log of a trainer."""
    return source.kind == "log" and any(one.is_one(source) for one in FORMS)


def complete(
    runs: Iterable[Run], *, configs: Iterable[Place] = (), **fields: object
) -> list[Run]:
    """Return runs with what is given beside them, as `read` takes it, for nulls."""
    return _facts(configs, fields).filled(runs, None)


def _facts(configs: Iterable[Place], fields: Document) -> Given:
    return Given(fields_of(fields), tuple(config(Path(place)) for place in configs))


def _form(source: Source) -> Form:
    for form in FORMS:
        if form.is_one(source):
            return form
    known = "; ".join(form.reads for form in FORMS)
    raise InstanceError.at(
        source.path,
        None,
        f"found no run in a known form, expected one of: {known}; give the whole "
        "output of the rank that prints the iterations; for a script or configuration "
        "use hetopt check --from",
    )


def _belongs(one: Config, form: Form) -> None:
    if one.kind not in ("model", form.config):
        wanted = " or ".join(filter(None, ("a model's config.json", form.config)))
        raise InstanceError.at(
            one.path,
            None,
            f"found a configuration of {one.kind} beside a file of {form.name}, "
            f"expected {wanted}; leave it out",
        )
