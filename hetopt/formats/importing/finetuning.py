"""Fine-tuning trains all weights, or adapters, by one of these optimisers."""

from collections.abc import Mapping
from typing import get_args

from ...catalogue import Gpu
from ...errors import InstanceError, UnknownName
from ...schema import Lora, Offload
from ...schema.states import Optimiser
from ...text.documents import Document, Fields
from .assumptions import Assumption

#: Options: `finetune=lora`, with `rank=16` and `beside=attention`; `optimiser=muon`;
#: `offload=optimiser`, with the rate of each GPU's link to its host if it is not the
#: bus's.
OPTIONS: Document = {
    **{"finetune": str, "rank": int, "beside": str},
    **{"optimiser": str, "offload": str, "host_gbytes_per_s": float},
}

_WAYS: dict[str, Document | None] = {
    "full": None,
    "lora": {},
    "qlora": {"weight_bits": 4},
}
_RANK = 16
_BESIDE = list(get_args(Lora.model_fields["beside"].annotation))


def optimiser_fields(options: Fields) -> tuple[Document, tuple[Assumption, ...]]:
    """The fields of `workload.costs` of the optimiser, and what is assumed of it."""
    made: Document = {}
    known = list(get_args(Optimiser))
    if (name := options.get("optimiser", known[0])) not in known:
        raise UnknownName("optimiser", name, known)
    if name != known[0]:
        made["optimiser"] = name
    if not options.get("offload"):
        if "host_gbytes_per_s" in options:
            raise InstanceError(
                "option host_gbytes_per_s needs offload: give both, or neither"
            )
        return made, ()
    if options["offload"] != "optimiser":
        raise UnknownName("part to offload", options["offload"], ["optimiser"])
    made["offload"] = {}
    rate = Offload().memory_gbytes_per_s
    row = Assumption(
        "memory of hosts",
        f"{rate:g} GB/s",
        "about half the peak memory rate of two processors",
        "workload.costs.offload.memory_gbytes_per_s",
    )
    return made, (row,)


def with_links(
    gpus: Fields, cards: Mapping[str, Gpu | None], options: Fields
) -> Document:
    """`cluster.gpus` with the links to their hosts, where states are offloaded.

    `InstanceError` for a card whose bus nobody knows.
    """
    if not options.get("offload"):
        return dict(gpus)
    made = {}
    for name, fields in gpus.items():
        rate, card = options.get("host_gbytes_per_s"), cards[name]
        if rate is None:
            rate = card.pcie_gbytes_per_s if card else None
        if rate is None:
            raise InstanceError(
                f"offload: found no bus of {name!r} in the catalogue; give "
                "-o host_gbytes_per_s=X"
            )
        made[name] = fields | {"host_gbytes_per_s": rate}
    return made


def trained_part(options: Fields) -> tuple[Document, tuple[Assumption, ...]]:
    """The fields of `workload.costs`, and what is assumed; none where all is trained.

    `options` are those of `OPTIONS` that were told. `UnknownName` for another way to
    fine-tune, `InstanceError` for options of adapters where there are none.
    """
    way = options.get("finetune", "full")
    if way not in _WAYS:
        raise UnknownName("way to fine-tune", way, [*_WAYS])
    fields = _WAYS[way]
    if fields is None:
        for name in ("rank", "beside"):
            if name in options:
                raise InstanceError(
                    f"option {name}: found {options[name]!r} without adapters; give "
                    "finetune=lora or finetune=qlora, too"
                )
        return {}, ()
    rank, rows = options.get("rank"), []
    if rank is None:
        rank = _RANK
        source = "usual (MLPerf's fine-tuning of Llama-2 70B)"
        rows.append(Assumption("rank of LoRA", str(rank), source, "-o rank=N"))
    elif rank < 1:
        raise InstanceError(f"option rank: found {rank}, expected 1 or more; raise it")
    beside = options.get("beside")
    if beside is None:
        beside = _BESIDE[0]
        source = "as in QLoRA, on the MLP's matrices too"
        change = "-o beside=attention"
        rows.append(Assumption("LoRA's adapters", "on all matrices", source, change))
    elif beside not in _BESIDE:
        raise UnknownName("place of adapters", beside, _BESIDE)
    return {"lora": {"rank": rank, "beside": beside, **fields}}, tuple(rows)
