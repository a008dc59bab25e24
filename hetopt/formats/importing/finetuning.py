"""What of a model is trained: all weights, or adapters beside frozen ones."""

from collections.abc import Mapping
from typing import Any, get_args

from ...errors import InstanceError, UnknownName
from ...schema import Lora
from .assumptions import Assumption

#: Options: `finetune=lora`, with `rank=16` and `beside=attention`.
OPTIONS: dict[str, Any] = {"finetune": str, "rank": int, "beside": str}

_WAYS: dict[str, dict[str, Any] | None] = {
    "full": None,
    "lora": {},
    "qlora": {"weight_bits": 4},
}
_RANK = 16
_BESIDE = list(get_args(Lora.model_fields["beside"].annotation))


def trained(
    options: Mapping[str, Any],
) -> tuple[dict[str, Any], tuple[Assumption, ...]]:
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
                    f"option {name}: found {options[name]!r} and no adapters, which it "
                    "is of; give finetune=lora or finetune=qlora, too"
                )
        return {}, ()
    rank, rows = options.get("rank"), []
    if rank is None:
        rank = _RANK
        source = "usual, as MLPerf's fine-tuning of Llama-2 70B has it"
        rows.append(Assumption("rank of LoRA", str(rank), source, "-o rank=N"))
    elif rank < 1:
        raise InstanceError(f"option rank: found {rank}, expected 1 or more; raise it")
    beside = options.get("beside")
    if beside is None:
        beside = _BESIDE[0]
        source = "as QLoRA has them, beside the MLP's matrices too"
        change = "-o beside=attention"
        rows.append(Assumption("LoRA's adapters", "beside all", source, change))
    elif beside not in _BESIDE:
        raise UnknownName("place of adapters", beside, _BESIDE)
    return {"lora": {"rank": rank, "beside": beside, **fields}}, tuple(rows)
