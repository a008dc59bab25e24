"""An assembled instance with calibrated times: constants of measured runs, by card.

A card of the catalogue gets its name, generation and peaks, and the rate of its memory;
`efficiency` becomes what the calibrated layers reach of the peak, which is what
planners rank GPUs by. Gradients and hops are exposed by the share that was measured of
the framework: `sync_factor`, `hop_factor`.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, get_args

from ...catalogue import Gpu, find_gpu, machines, reserve
from ...costs import CostTable
from ...costs.calibrated import machine_of
from ...costs.compute import layer_flops
from ...costs.constants import Stated
from ...costs.constants.shipped import BOUND_BY_HOSTS, is_seen, spread, unseen, values
from ...costs.formulas import memory
from ...costs.formulas.frameworks import DEEPSPEED, FRAMEWORKS, by_pytorch, kernel_of
from ...costs.formulas.kernels import Constants
from ...costs.settings import exposed_share
from ...errors import InstanceError, UnknownName
from ...schema import CostSettings, GpuType, Instance, exact
from ...schema.calibration import Precision
from ...text.complaints import validated
from ...text.documents import Document, Fields
from . import assumptions, divisions
from .assumptions import RULES, Assumption

#: Options of what runs the plan, as far as times depend on it.
OPTIONS: Document = {
    **dict.fromkeys(("framework", "style", "kernel", "products"), str),
    **dict.fromkeys(("release", "site", "overlap", "dispatcher", "loss"), str),
    **divisions.OPTIONS,
}
TIMES = ("calibrated", "analytic")

_RESERVE = "-o reserve_mib=N"
_CHANGE = "-o efficiency=X, or --times analytic"


#: Whose users compile.
_COMPILED = ("torchtitan",)
#: The framework that is nearest to a program of `runs_on`.
_RUNNING = {"torchtitan": "torchtitan", "deepspeed": "deepspeed"}
#: Frameworks that a file of a program may be of besides: as an instance says.
_KIN = {
    "megatron": frozenset({"megatron-2021"}),
    "trainer": (DEEPSPEED | {"unsloth"}) - {"megatron-2021"},
}


def calibrate(
    made: Document,
    cards: Mapping[str, Gpu | None],
    options: Fields,
    *,
    reserved: bool = False,
) -> tuple[Document, tuple[Assumption, ...]]:
    """The document of an instance with calibrated times, and what is assumed for it.

    `cards` are the sheets of its GPU types; `options` those of `OPTIONS` that were
    told; `reserved` says that what is kept free was told. Where a card is not in the
    catalogue, or there are no constants for the precision, the document stays as it
    is, and the row says why. `InstanceError` for a kernel that no card can run.
    """
    costs = CostSettings.model_validate(made["workload"]["costs"], strict=False)
    widths = {"fp32": "fp32", "fp16_mixed": "fp16"}
    usual = widths.get(costs.memory.precision or "", "bf16")
    # Of the products of layers; a card without it takes a wider one.
    if (precision := options.get("products", usual)) not in get_args(Precision):
        every = list(get_args(Precision))
        raise UnknownName("precision of products", precision, every)
    if why := _unfit(cards, precision):
        row = Assumption("times of layers", "share of the peak", why, _CHANGE)
        return made, (row,)
    framework = _framework(made, costs, options)
    made, unfused = _without_flash(made, cards, framework, options)
    costs = CostSettings.model_validate(made["workload"]["costs"], strict=False)
    kernel = options.get("kernel") or (None if costs.compute.flash else "none")
    calibration = _software(
        *(framework, kernel, precision, values(), costs),
        [(card, card.generation) for card in cards.values() if card],
        mixture=bool(made["model"].get("experts")),
    ) | _told(options)
    value = ", ".join(str(calibration[x]) for x in ("framework", "style", "kernel"))
    wider = ""
    if new := [card.name for card in cards.values() if card and not is_seen(card.name)]:
        wider = f"; not calibrated here: {', '.join(new)}, so the interval is wider"
    rows: tuple[Assumption, ...]
    row = Assumption(
        "times of layers",
        f"calibrated: {value}",
        "constants fitted to measured runs" + wider,
        f"{_CHANGE}; -o framework=NAME, style=NAME, kernel=NAME, products=fp8",
    )
    settings: Document = dict.fromkeys(("layer_times", "activations"), TIMES[0])
    settings["calibration"] = calibration
    offers, divided = divisions.alternatives(made, options)
    settings |= {field: degrees[0] for field, degrees in offers.items()}
    stages_of_zero = made["workload"].get("alternatives", {}).get("zero", ())
    if 3 in (costs.updates.zero, *stages_of_zero):
        settings["gathers"] = "micro_batch"
    shares = Stated(values()), framework, costs
    settings |= _exposed_shares(*shares, options.get("site", ""))
    made, rows = _with(made, cards, settings, offers), (row, *unfused, *divided)
    if not reserved:
        made, more = _roomy(made, framework)
        rows += more
    return _with_constants(made), rows


def run_by(instance: Instance, framework: str, **told: Any) -> Instance:
    """Return an instance that is timed as one framework, by name, runs it.

    It is the instance itself where times are not calibrated, or are of the framework.
    Constants that it does not carry, nor are `told`, are those that are shipped.
    """
    costs = instance.workload.costs
    calibration = costs.compute.calibration
    if calibration is None or (calibration.framework == framework and not told):
        return instance
    gpus = instance.planned_cluster.gpus
    constants = {**values(), **calibration.constants, **told.pop("constants", {})}
    kernel = None if calibration.kernel != "none" else "none"
    changes = _software(
        *(framework, kernel, calibration.precision, constants, costs),
        [(find_gpu(gpu.card or ""), gpu.generation) for gpu in gpus.values()],
        mixture=bool(instance.model.experts),
    )
    shares = Stated(constants), framework, costs
    return instance.with_costs(
        calibration=calibration.model_copy(update=changes | told),
        **_exposed_shares(*shares, calibration.site or ""),
    )


def run_as_asked(instance: Instance, program: str, zero: int, told: Fields) -> Instance:
    """Return an instance that is timed as a file of a `program`, a framework, runs it.

    An instance of a framework that such files may be of stays so; `told` is what the
    file says of style, overlap and dispatcher. ZeRO 3 gathers weights for every
    micro-batch, and hides less of it.
    """
    costs = instance.workload.costs
    if (known := costs.compute.calibration) is None:
        return instance
    overlap = dict.fromkeys((*known.overlap, *told.get("overlap", ())))
    now = dict(told) | {"overlap": tuple(overlap)}
    is_kin = known.framework in (program, *_KIN.get(program, ()))
    gathers = "micro_batch" if zero == 3 else "iteration"
    if (zero == 3) != (costs.updates.zero == 3):
        instance = instance.with_costs(zero=zero, gathers=gathers)
    elif is_kin and all(getattr(known, name) == x for name, x in now.items()):
        return instance
    for name in ("style", "kernel", "spread") if is_kin else ():
        now.setdefault(name, getattr(known, name))
    return run_by(instance, known.framework if is_kin else program, **now)


def _roomy(made: Document, framework: str) -> tuple[Document, tuple[Assumption, ...]]:
    """Give each card the memory that plans may weigh, in place of the rule's."""
    constant = Stated(values())
    alone = sum(node.get("count", 1) for node in made["cluster"]["nodes"]) == 1
    gpus, rows = dict(made["cluster"]["gpus"]), []
    for name, fields in gpus.items():
        whole = reserve().whole(fields["memory_gib"] * 1024) / 1024
        gpu = GpuType.model_validate({**fields, "memory_gib": whole}, strict=False)
        room = memory.room(constant, machine_of(gpu, None), framework, alone=alone)
        left = int(room / 2**30 * 1000) / 1000
        gpus[name] = fields | {"memory_gib": left}
        why = "less CUDA context, NCCL and fragmentation (measured), and a margin"
        value = f"{left:.1f} of {whole:.1f} GiB"
        rows.append(Assumption(assumptions.room_of(name), value, why, _RESERVE))
    cluster = made["cluster"] | {"gpus": gpus}
    return made | {"cluster": cluster}, tuple(rows)


def _unfit(cards: Mapping[str, Gpu | None], precision: str) -> str | None:
    if unknown := [name for name, card in cards.items() if card is None]:
        return f"the catalogue does not have {', '.join(unknown)}"
    if precision == "fp32":
        return "no constants were fitted to products in fp32"
    return None


def _framework(made: Fields, costs: CostSettings, options: Fields) -> str:
    """Return the framework that is told, or that runs such a training.

    Megatron has no frozen weights of four or eight bits, PEFT has.
    """
    runs_on, lora = made["workload"].get("runs_on") or "any", costs.updates.lora
    usual = "trainer" if lora is not None and lora.weight_bits else "megatron"
    name = options.get("framework") or _RUNNING.get(runs_on, usual)
    if name not in FRAMEWORKS:
        raise UnknownName("framework", name, sorted(FRAMEWORKS))
    return str(name)


def _without_flash(
    made: Document, cards: Mapping[str, Gpu | None], framework: str, options: Fields
) -> tuple[Document, tuple[Assumption, ...]]:
    """Return the document without flash attention where no card has it, and a row.

    FlashAttention 2 and cuDNN's kernel want compute capability 8.0, which came with
    bf16; an older card keeps its scores in memory, beside newer ones as well, unless
    the `framework` leaves the choice to PyTorch, which has a kernel for it.
    `InstanceError` where such a kernel was asked for and no card can run it.
    """
    without = [name for name, card in cards.items() if card and not card.has_bf16]
    costs = made["workload"]["costs"]
    if not without or not costs["flash"]:
        return made, ()
    if by_pytorch(framework) and options.get("kernel") is None:
        what, value = f"flash on {', '.join(without)}", "PyTorch's memory-efficient"
        why = (
            f"FlashAttention 2 needs compute capability 8.0; {framework} lets PyTorch "
            "choose"
        )
        return made, (Assumption(what, value, why, "-o flash=false"),)
    names, change = ", ".join(without), "-o flash=false, or --times analytic"
    why = (
        "FlashAttention 2 and cuDNN need compute capability 8.0; scores are kept in "
        "memory"
    )
    if len(without) < len(cards):
        row = Assumption(f"flash on {names}", "off", why, change)
        return made, () if "flash" in options else (row,)
    kernel = options.get("kernel", "none")
    if options.get("flash") or kernel != "none":
        asked = f"kernel: found {kernel!r}" if kernel != "none" else "flash: found true"
        raise InstanceError(
            f"option {asked}, which is not calibrated on {names}: FlashAttention 2 "
            "and cuDNN need compute capability 8.0; leave it out, or give --times "
            "analytic, which also counts PyTorch's memory-efficient attention as flash"
        )
    workload = {**made["workload"], "costs": {**costs, "flash": False}}
    row = Assumption("flash", "off", f"none on {names}: {why}", change)
    return {**made, "workload": workload}, (row,)


def _software(
    framework: str,
    kernel: str | None,
    precision: str,
    constants: Mapping[str, float],
    costs: CostSettings,
    cards: Sequence[tuple[Gpu | None, str | None]],
    *,
    mixture: bool,
) -> Document:
    """Return what a calibration says of a framework on cards of generations.

    Without a `kernel` it is the framework's. Of unlike cards the least known one
    decides on the spread of times.
    """
    generations = {generation for _, generation in cards}
    every = generations.pop() if len(generations) == 1 else None
    kernel = kernel or kernel_of(framework, every) or "flash2"
    known = [card for card, _ in cards if card]
    scatter = spread(
        experts=mixture,
        scores=kernel == "none" or not all(card.has_bf16 for card in known),
        lora=costs.updates.lora is not None or framework in BOUND_BY_HOSTS,
        precision=precision,
        unknown=max((unseen(x.name, framework) for x in known), default=0.0),
    )
    style = "compiled" if framework in _COMPILED else FRAMEWORKS[framework].style
    return {
        **{"framework": framework, "style": style, "kernel": kernel},
        **{"precision": precision, "constants": dict(constants), "spread": scatter},
    }


def _told(options: Fields) -> Document:
    """Return what is told of the software, the machine, and what hides there."""
    named = ("style", "release", "site", "overlap", "dispatcher", "loss")
    told = {name: options[name] for name in named if name in options}
    if "overlap" in told:
        told["overlap"] = told["overlap"].split(",")
    sites = {name for name in machines() if f"pace@{name}" in values()}
    if (site := told.get("site")) is not None and site not in sites:
        raise UnknownName("site", site, sorted(sites))
    return told


def _exposed_shares(
    constant: Constants, framework: str, costs: CostSettings, site: str
) -> dict[str, float]:
    """Return the share of synchronisation and hops that nothing hides.

    Gradients of the precision's width are reduced and weights of two bytes gathered;
    the cost model counts `sync_passes` over gradients.
    """
    found = {"sync_factor": exposed_share(constant, framework, costs, site)}
    for field, runs in (("", "plain"), ("interleaved_", "interleaved")):
        found[f"{field}hop_factor"] = constant("hop", framework, runs)
    found["iteration_overhead_us"] = 1e6 * constant("iteration", framework)
    return {field: float(f"{value:.4g}") for field, value in found.items()}


def _with(
    made: Document,
    cards: Mapping[str, Gpu | None],
    settings: Fields,
    offers: Mapping[str, list[int]],
) -> Document:
    gpus = {}
    for name, fields in made["cluster"]["gpus"].items():
        card = cards[name]
        assert card is not None  # `_unfit` has seen to it
        gpus[name] = fields | {
            "memory_gbytes_per_s": card.memory_gbytes_per_s,
            "card": card.name,
            "generation": card.generation,
            "peaks": card.peaks,
        }
    workload = made["workload"]
    costs = workload["costs"] | settings
    several = {field: x for field, x in offers.items() if len(x) > 1}
    other = workload.get("alternatives", {}) | several
    return made | {
        "cluster": made["cluster"] | {"gpus": gpus},
        "workload": workload | {"costs": costs, "alternatives": other},
    }


def _with_constants(made: Document) -> Document:
    """State the constants read, and the share of the peak that layers reach."""
    instance = validated(Instance, made, "the assembled instance", file="")
    table = CostTable(instance)
    if table.calibrated is None:
        raise InstanceError("found no calibration, expected one: give layer_times")
    read = _constants_of(table)
    costs = made["workload"]["costs"]
    calibration = costs["calibration"] | {"constants": read}
    costs = costs | {"calibration": calibration}
    gpus = dict(made["cluster"]["gpus"])
    b = min(instance.workload.micro_batch_sizes)
    flops = sum(
        layer_flops(instance.model, instance.workload, layer, b)
        for layer in range(instance.model.layers)
    )
    for node in instance.planned_cluster.nodes:
        peak = exact(instance.planned_cluster.gpus[node.gpu].peak_tflops) * 10**6
        share = flops / (peak * sum(table.layer_us(node.name, 1, b)))
        efficiency = min(1.0, max(1e-4, round(float(share), 3)))
        gpus[node.gpu] = gpus[node.gpu] | {"efficiency": efficiency}
    return made | {
        "cluster": made["cluster"] | {"gpus": gpus},
        "workload": made["workload"] | {"costs": costs},
    }


def _constants_of(table: CostTable) -> dict[str, float]:
    """Return the constants that times and memory of any plan depend on."""
    names: set[str] = set()
    for rule, zero in product(RULES, (0, 3)):
        one = table.under(rule, zero)
        assert one.calibrated is not None
        assert one.weighing is not None
        for place in set(table.node_class.values()):
            one.calibrated.read_all(place)
            for first, last in product((False, True), repeat=2):
                for layer in range(table.layers):
                    run = range(layer, layer + 1)
                    one.weighing.once(place.gpu, run, 1, 1, first=first, last=last)
        if len({x == 3 for x in table.workload.zeros}) > 1:
            told, c = one.calibrated.calibration, one.calibrated.constant
            exposed_share(c, told.framework, one.workload.costs, told.site or "")
        names |= one.calibrated.constant.read
    assert table.calibrated is not None
    known = table.calibrated.calibration.constants
    return {name: known[name] for name in sorted(names)}
