"""Cost settings choose the variant of the cost model, in five groups of fields.

A file says the groups, or a preset. The fields of all groups side by side are read as
well.
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from pydantic import GetJsonSchemaHandler, ValidationInfo, model_validator
from pydantic_core import CoreSchema

from ..text.complaints import unknown_name
from ..text.documents import Document, Fields
from .groups import Compute, Links, Memory, Schedule, Split, Updates
from .record import Record
from .states import StateBytes
from .widths import launched_precision

GROUPS: Mapping[str, type[Record]] = {
    "compute": Compute,
    "memory": Memory,
    "links": Links,
    "schedule": Schedule,
    "updates": Updates,
}

#: The group of each field.
GROUP_OF: Mapping[str, str] = {
    field: group for group, record in GROUPS.items() for field in record.model_fields
}

#: The group of each public name that one has beside what all records have.
_HOLDERS: Mapping[str, str] = {
    name: group
    for group, record in GROUPS.items()
    for name in (*record.model_fields, *vars(record))
    if not name.startswith("_") and not hasattr(Record, name)
}

PRESET = "preset"

# --- presets ----------------------------------------------------------------------
# A preset says what a source says, and leaves all else at its default. What papers
# print is in `instances/README.md`, with the instances that are of each preset.

Groups = Mapping[str, Fields]

_HEXISCALE: Groups = {
    "compute": {"recompute": "full", "head": "omit"},
    "memory": {"bytes_per_parameter": 8, "activations": "checkpoint"},
    "schedule": {"in_flight": "one"},
}

PRESETS: Mapping[str, Groups] = MappingProxyType(
    {
        # Appendix A, Eq. 1-11.
        "hexiscale": _HEXISCALE,
        # The released planner, with the factors of its ZeRO-3.
        "hexiscale_released": {
            **_HEXISCALE,
            "schedule": {
                "in_flight": "one",
                "pipeline": "lockstep",
                "pipeline_factor": 1.8,
            },
            "updates": {"sync_factor": 1.65},
        },
        # Section IV: the lowest bandwidth among replicas; activations are kept.
        "autohet": {
            "compute": {"recompute": "none", "flash": True},
            "updates": {"sync": "bottleneck"},
        },
        # Its estimator: the lowest bandwidth among replicas.
        "metis": {"compute": {"recompute": "full"}, "updates": {"sync": "bottleneck"}},
        # Eq. 9: gradients are exchanged behind the backward passes of earlier stages.
        "espresso": {
            "compute": {"recompute": "full", "flash": True, "head": "omit"},
            "updates": {"sync_overlap": "backward"},
        },
        # Megatron-LM in bf16: gradients in fp32 (`hetopt.schema.widths`), sequence
        # parallelism, the all-reduce of tied embeddings.
        "megatron": {
            "compute": {"recompute": "none", "flash": True, "sequence_parallel": True},
            "memory": {"precision": "bf16_fp32_gradients"},
            "updates": {"tied_sync": True},
        },
        # torchtitan: FSDP gathers weights for every micro-batch and reduces gradients
        # in fp32; PyTorch's own loss keeps the gradients of the logits.
        "torch": {
            "compute": {"recompute": "none", "flash": True, "sequence_parallel": True},
            "memory": {"precision": "bf16_fp32_gradients", "logit_gradients": True},
            "updates": {"zero": 3, "gathers": "micro_batch"},
        },
    }
)


class CostSettings(Record):
    """The variants of the one cost model; each paper's variant is data here.

    Settings are made of groups, or of a preset by its name, which what stands beside it
    changes. `model_copy(update={"zero": 1})` changes the field in its group, and for
    scripts `settings.zero` is `settings.updates.zero`; code of ours reads groups.
    """

    compute: Compute = Compute()
    memory: Memory = Memory()
    links: Links = Links()
    schedule: Schedule = Schedule()
    updates: Updates = Updates()

    if not TYPE_CHECKING:  # so that our own code is held to the groups

        def __getattr__(self, name: str) -> object:
            """Return what a group has of this name."""
            if (group := _HOLDERS.get(name)) is not None:
                return getattr(getattr(self, group), name)
            return super().__getattr__(name)

    @model_validator(mode="before")
    @classmethod
    def _in_groups(cls, data: object, info: ValidationInfo) -> object:
        if isinstance(data, str):
            data = {PRESET: data}
        if not isinstance(data, Mapping):
            return data
        tree = _with_preset(group_fields(data))
        if info.mode == "json" and isinstance(tree.get("compute"), dict):
            # Seen from here JSON's lists are lists already, which tuples refuse.
            compute = tree["compute"]
            if isinstance(rows := compute.get("profile"), list):
                tree["compute"] = {**compute, "profile": tuple(rows)}
        return tree

    def checked(self) -> Self:
        """Return the settings; `ValueError` where groups do not agree."""
        compute, activations = self.compute, self.memory.activations
        for field in ("context_parallel", "expert_parallel"):
            if getattr(compute, field) > 1 and activations != "calibrated":
                raise ValueError(
                    f"{field} is {getattr(compute, field)} and activations is "
                    f"{activations!r}: give layer_times and activations "
                    f"'calibrated', or {field} 1"
                )
        if activations == "calibrated" and compute.calibration is None:
            raise ValueError(
                "activations is 'calibrated' and costs has no calibration: give "
                "layer_times 'calibrated' too, or activations 'architecture'"
            )
        if self.updates.zero and any(row.layer_mib for row in compute.profile):
            raise ValueError(
                f"zero is {self.updates.zero} and profile has layer_mib, which "
                "includes states: remove layer_mib, or zero"
            )
        return self

    _checks = model_validator(mode="after")(checked)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, object]:
        made = handler(schema)
        found = handler.resolve_ref_schema(made)
        names = {"enum": sorted(PRESETS)}
        found["properties"] = {PRESET: names, **found["properties"]}
        return made

    def model_copy(self, *, update: Fields | None = None, deep: bool = False) -> Self:
        """Return a copy with changes of groups, or of fields in their groups."""
        groups: dict[str, Any] = {}
        changes: dict[str, dict[str, Any]] = {}
        for name, value in (update or {}).items():
            if name in GROUPS:
                groups[name] = value
            else:
                changes.setdefault(GROUP_OF[name], {})[name] = value
        for group, fields in changes.items():
            own = groups.get(group, getattr(self, group))
            groups[group] = own.model_copy(update=fields)
        return super().model_copy(update=groups, deep=deep)

    def value(self, field: str) -> Any:
        """Return the value of a field, by the name that no other group has."""
        return getattr(getattr(self, GROUP_OF[field]), field)

    @property
    def by_formula(self) -> Self:
        """Return the settings under which queues time jobs: by formula, as a whole.

        Without calibration there are no divisions that need one; what is trained is
        said by each job.
        """
        changes: dict[str, object] = {"layer_times": "analytic", "profile": ()}
        changes |= {"calibration": None, "context_parallel": 1, "expert_parallel": 1}
        changes |= {"lora": None, "offload": None}
        if self.memory.activations == "calibrated":
            changes["activations"] = "standard"
        return self.model_copy(update=changes)

    @property
    def given(self) -> dict[str, object]:
        """Return the fields that are not left at their defaults, side by side."""
        groups = (getattr(self, group) for group in GROUPS)
        return {
            name: getattr(group, name)
            for group in groups
            for name in type(group).model_fields
            if name in group.model_fields_set
        }

    @cached_property
    def layer_states(self) -> StateBytes:
        """The bytes on a GPU of a parameter of a layer, frozen beside adapters."""
        states, lora = self.memory.states, self.updates.lora
        if lora is None:
            return states
        return StateBytes(lora.frozen_bytes(self._frozen), 0, 0)

    @cached_property
    def end_states(self) -> StateBytes:
        """Return the states of embedding and head, never quantised, nor Muon's."""
        memory = self.memory
        if self.updates.lora is None:
            by = "adamw" if memory.optimiser == "muon" else memory.optimiser
            return memory.on_gpu(memory.updated_by(by))
        return StateBytes(self._frozen, 0, 0)

    @property
    def _frozen(self) -> int | Fraction:
        """Bytes of a weight beside adapters, which Megatron has in eight bits alone."""
        timed, weight = self.compute.calibration, self.memory.states.weight
        if timed is None or timed.framework != "megatron" or not timed.is_narrow:
            return weight
        return Fraction(weight, 2)

    @property
    def split(self) -> Split:
        """Return the degrees that divide sequences, experts, stages and states."""
        return Split(
            self.compute.context_parallel,
            self.compute.expert_parallel,
            self.schedule.interleave,
            self.updates.zero_groups,
        )

    @property
    def shown_hop_factor(self) -> float:
        """Return the share of a hop that nothing hides."""
        links = self.links
        other = links.interleaved_hop_factor
        is_plain = other is None or self.schedule.interleave == 1
        return links.hop_factor if other is None or is_plain else other

    @property
    def kept_bytes(self) -> int | Fraction:
        """Return the bytes of a parameter of a layer that every replica holds."""
        return self.updates.kept(self.layer_states)

    def launched_by(self, target: str) -> Self:
        """Return the settings with the gradients that a program keeps and exchanges.

        They are themselves where it keeps what they say (`hetopt.schema.widths`). Where
        times are calibrated, `sync_factor` counts that weights of two bytes are
        gathered whatever gradients are.
        """
        return self.in_precision(launched_precision(target, self.memory.precision))

    def in_precision(self, precision: str | None) -> Self:
        """The settings with the bytes of another precision, which may send more."""
        if precision == self.memory.precision:
            return self
        given = {k: x for k, x in self.given.items() if k != "bytes_per_parameter"}
        made = type(self).model_validate(given | {"precision": precision})
        if self.compute.layer_times != "calibrated":
            return made
        factor = self.updates.sync_factor * made.sent_share / self.sent_share
        return made.model_copy(update={"sync_factor": float(f"{factor:.4g}")})

    @property
    def sent_share(self) -> float:
        """Return bytes that an exchange has of a parameter, by those that are counted.

        Gradients are reduced once, weights of two bytes gathered in all other passes.
        """
        gradient, passes = self.memory.gradient_bytes, self.updates.sync_passes
        return (gradient + 2 * (passes - 1)) / (gradient * passes)

    @property
    def sync_floor(self) -> Fraction:
        """Return the share of synchronisation that every iteration is as long as.

        It is what is sent, shown or hidden, where times are calibrated; else none.
        """
        hides = self.compute.layer_times == "calibrated" and self.updates.sync_factor
        return Fraction(int(1000 * self.sent_share) if hides else 0, 1000)


# --- fields and their groups ------------------------------------------------------


def group_fields(costs: Fields) -> Document:
    """Return settings with each field in its group; what is no field stays as it is.

    A field that stands in its group and beside it is a `ValueError`.
    """
    made = {group: costs[group] for group in GROUPS if group in costs}
    made |= {name: x for name, x in costs.items() if name not in GROUP_OF}
    for name, value in costs.items():
        if (group := GROUP_OF.get(name)) is None:
            continue
        own = made.get(group, {})
        if not isinstance(own, Mapping) or name in own:
            raise ValueError(
                f"found {name} next to {group}, expected it inside: move it there"
            )
        made[group] = {**own, name: value}
    return {name: made[name] for name in (*GROUPS, *made) if name in made}


def ungroup_fields(costs: Fields) -> Document:
    """Return settings in groups with their fields side by side."""
    return {name: x for group in costs.values() for name, x in group.items()}


def set_fields(costs: Document, fields: Fields) -> None:
    """Set fields in their groups of settings, as a file has them."""
    for name, value in fields.items():
        costs.setdefault(GROUP_OF[name], {})[name] = value


def _with_preset(costs: Document) -> Document:
    if PRESET not in costs:
        return costs
    made = {name: x for name, x in costs.items() if name != PRESET}
    name = costs[PRESET]
    if not isinstance(name, str) or name not in PRESETS:
        found = unknown_name("a known preset", name, sorted(PRESETS))
        raise ValueError(f"preset: {found}")
    for group, fields in PRESETS[name].items():
        own = made.get(group, {})
        if isinstance(own, GROUPS[group]):
            own = {field: getattr(own, field) for field in own.model_fields_set}
        if isinstance(own, Mapping):
            made[group] = {**fields, **own}
    return made
