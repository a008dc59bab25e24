"""Clusters as users assemble them: how good the default answer is after 10 and 60 s.

    python benchmarks/own_clusters.py [--limit 10] [--only WORD ...] [--page]

Each cluster is a list of hosts of the catalogue's cards, made into an instance as
`hetopt assemble` does (calibrated times; recomputation, ZeRO and interleaving are the
plan's choice), and planned from nothing, in CPU seconds of one core, so that a busy
machine changes little. `--only` takes those whose names hold one of the words. A run
is a line of results/own_clusters.jsonl; `--page` writes results/own_clusters.md of the
latest ones. 30 minutes at 60 s.
"""

import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import _pages
from _measuring import asked, by_cpu_clock, keep, kept, publish, wanted

import hetopt
from hetopt.schema import Instance

LINES, PAGE = "own_clusters.jsonl", "own_clusters.md"
_QWEN = {"num_key_value_heads": 8, "hidden_act": "silu", "rms_norm_eps": 1e-6}
#: What configurations of models say that the catalogue lacks.
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2.5-32b": {
        **_QWEN,
        **{"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
        **{"hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 40},
        **{"intermediate_size": 27648, "vocab_size": 152064},
    },
    "qwen3-30b-a3b": {
        **_QWEN,
        **{"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]},
        **{"hidden_size": 2048, "num_hidden_layers": 48, "num_attention_heads": 32},
        **{"num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 6144},
        **{"moe_intermediate_size": 768, "num_experts": 128, "norm_topk_prob": True},
        **{"num_experts_per_tok": 8, "vocab_size": 151936, "decoder_sparse_step": 1},
    },
}


class Own(NamedTuple):
    """A model on hosts of `nodes` x `GPUs` each, with GB/s between them."""

    model: str
    batch: int
    sequence: int
    gbytes_per_s: float
    hosts: tuple[tuple[int, int, str], ...]


A40, A80 = "A100-40GB-SXM4", "A100-80GB-SXM4"
H100, H20, H200 = "H100-80GB-SXM5", "H20-96GB-SXM5", "H200-141GB-SXM5"
V100 = "V100-32GB-SXM2"
CLUSTERS = {
    # Those of which weak answers were reported.
    "r1-8b": Own("llama-3-8b", 64, 4096, 12.5, ((1, 8, A80), (2, 8, "RTX4090"))),
    "r2-13b": Own("llama-2-13b", 128, 4096, 12.5, ((2, 8, A40), (2, 8, V100))),
    "r3-30b-a3b": Own("qwen3-30b-a3b", 256, 4096, 50, ((2, 8, H100), (2, 8, H20))),
    "r3-32b": Own("qwen2.5-32b", 128, 4096, 50, ((2, 8, H100), (2, 8, H20))),
    "r4-13b": Own("llama-2-13b", 256, 4096, 25, ((4, 8, A80),)),
    "r4-8b": Own("llama-3-8b", 128, 4096, 12.5, ((4, 8, A80),)),
    "r5-8b": Own("llama-3-8b", 128, 8192, 3.125, ((4, 4, "L40S"), (1, 8, A80))),
    "r6-70b": Own("llama-3-70b", 256, 8192, 50, ((8, 8, H100),)),
    "r7-70b": Own("llama-3-70b", 512, 8192, 50, ((8, 8, A80), (8, 8, H100))),
    "r8-8b": Own("llama-3-8b", 32, 2048, 1.25, ((4, 2, "RTX3090"), (2, 4, "RTX4090"))),
    # Others: cards, models and networks that those have not.
    "s1-7b": Own("mistral-7b", 64, 4096, 3.125, ((2, 8, "A10G"), (1, 8, "L40S"))),
    "s2-13b": Own("llama-2-13b", 64, 4096, 6.25, ((2, 4, "A40"), (1, 8, A40))),
    "s3-8x7b": Own("mixtral-8x7b", 128, 4096, 50, ((2, 8, A80), (1, 8, H100))),
    "s4-8b": Own("llama-3-8b", 128, 8192, 25, ((2, 8, "MI300X"),)),
    "s5-3b": Own(
        "llama-3.2-3b", 64, 4096, 1.25, ((4, 2, "RTX3090"), (3, 1, "RTX5090"))
    ),
    "s6-70b": Own("llama-2-70b", 128, 4096, 50, ((2, 8, H200), (4, 8, A80))),
    "s7-7b": Own("qwen2.5-7b", 256, 4096, 12.5, ((4, 8, V100), (2, 8, A40))),
    "s8-16b": Own("deepseek-moe-16b", 128, 4096, 25, ((2, 8, A80), (2, 8, "L40S"))),
    "s9-30b": Own("llama-30b", 128, 2048, 12.5, ((3, 8, A40), (2, 8, V100))),
    "s10-6.7b": Own("gpt3-6.7b", 256, 2048, 3.125, ((6, 4, "T4"), (2, 4, V100))),
    "s11-405b": Own("llama-3.1-405b", 256, 8192, 50, ((32, 8, H100), (16, 8, H200))),
    "s12-8b": Own("llama-3-8b", 96, 4096, 2.5, ((3, 4, "RTX4090"), (2, 3, "RTX3090"))),
    "s13-7b": Own("llama-2-7b", 64, 4096, 12.5, ((1, 8, H100), (1, 8, V100))),
    "s14-32b": Own("qwen2.5-32b", 256, 8192, 25, ((4, 8, "L40S"), (2, 8, H100))),
    "s15-1b": Own("llama-3.2-1b", 256, 4096, 1.25, ((5, 2, "RTX4070"), (2, 4, "L4"))),
    "s16-8x22b": Own("mixtral-8x22b", 256, 4096, 50, ((8, 8, H100), (4, 8, H20))),
}


def instance(name: str) -> Instance:
    """Return a cluster's instance, as its user would assemble it."""
    own = CLUSTERS[name]
    with tempfile.TemporaryDirectory() as folder:
        config: str | Path = own.model
        if own.model in CONFIGS:
            config = Path(folder) / f"{own.model}.json"
            config.write_text(json.dumps(CONFIGS[own.model]))
        hosts = Path(folder) / "hosts"
        hosts.write_text(
            "".join(
                f"{kind}{i} slots={gpus} type={card}\n"
                for kind, (nodes, gpus, card) in zip("abc", own.hosts, strict=False)
                for i in range(nodes)
            )
        )
        return hetopt.assemble(
            *(config, hosts),
            format="hostfile",
            name=name,
            global_batch=own.batch,
            sequence_length=own.sequence,
            options={"inter_gbytes_per_s": own.gbytes_per_s},
        )


def measured(name: str, limit_s: float) -> dict[str, Any]:
    """What the default plan is after so many CPU seconds."""
    data = instance(name)
    result = by_cpu_clock(lambda: hetopt.plan(data, limits=limit_s, known=False))
    return {
        "instance": name,
        "gpus": data.planned_cluster.gpu_count,
        "limit_s": limit_s,
        "status": result.status.value,
        "time_s": result.objective and float(result.objective) / 1e6,
        "bound_s": result.bound and float(result.bound.value) / 1e6,
        "source": result.bound and result.bound.source,
        "gap": result.gap,
    }


def page() -> str:
    """Return every cluster's latest run at each limit, and medians."""
    latest = {(row["limit_s"], row["instance"]): row for row in kept(LINES)}
    limits = sorted({limit for limit, _ in latest})
    best: dict[str, float] = {}
    for (_, name), row in latest.items():
        if row["time_s"]:
            best[name] = min(row["time_s"], best.get(name, row["time_s"]))
    rows = []
    for name, own in CLUSTERS.items():
        hosts = ", ".join(f"{n} x {gpus} {card}" for n, gpus, card in own.hosts)
        cells = [f"`{name}`", hosts]
        for limit in limits:
            row = latest.get((limit, name), {"time_s": None, "gap": None})
            more = row["time_s"] and row["time_s"] / best[name] - 1
            shares = (more, row["gap"])
            cells += [_pages.shown(row["time_s"])]
            cells += ["–" if share is None else f"{share:.1%}" for share in shares]
        rows.append(cells)
    heads = [h for x in limits for h in (f"{x:g} s: plan, s", "over the best", "gap")]
    text = ["# Clusters as users assemble them", ""]
    text += ["By `python benchmarks/own_clusters.py`: CPU seconds of one core.", ""]
    for limit in limits:
        gaps = [row["gap"] for (x, _), row in latest.items() if x == limit]
        known = [gap for gap in gaps if gap is not None]
        text.append(
            f"After {limit:g} s {len(known)} of {len(gaps)} have a plan; gaps are "
            f"{median(known):.1%} at the median, {max(known):.1%} at the most.\n"
        )
    text += _pages.grid(("cluster", "hosts", *heads), rows)
    return "\n".join(text) + "\n"


def main() -> None:
    """Measure what is asked for, and write the page."""
    given = asked(__doc__, 10.0)
    for name in wanted(CLUSTERS, given):
        found = measured(name, given.limit)
        keep(LINES, found, "ortools")
        print(*found.values(), flush=True)
    publish(PAGE, page(), LINES)


if __name__ == "__main__":
    main()
