"""The executor on GPUs of this machine: a step's seconds and memory beside the judge's.

    python benchmarks/executor.py --make FOLDER --host "h1 slots=1 type=H100-80GB-SXM5"
    python benchmarks/executor.py --run FOLDER [--steps 8]
    python benchmarks/executor.py --page

`--make` assembles models on hosts and plans them, `--run` trains by the plans that lie
in the folder (on a machine with PyTorch and the GPUs; solvers need not be there) and
appends rows to results/executor.jsonl, `--page` writes results/executor.md from them.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

RESULTS = Path(__file__).parent / "results"
LINES, PAGE = "executor.jsonl", "executor.md"
SEQUENCES, TOKENS = 16, 4096
Row = dict[str, Any]


def _model(
    layers: int, hidden: int, heads: int, kv: int, inner: int, tied: bool
) -> Row:
    return {
        **{"model_type": "llama", "num_hidden_layers": layers, "hidden_size": hidden},
        **{"num_attention_heads": heads, "num_key_value_heads": kv},
        **{"intermediate_size": inner, "vocab_size": 128256, "rms_norm_eps": 1e-5},
        **{"tie_word_embeddings": tied, "rope_theta": 5e5, "hidden_act": "silu"},
        "max_position_embeddings": 131072,
    }


MODELS = {
    "500m": _model(16, 1024, 16, 8, 4096, True),
    "1b": _model(16, 2048, 32, 8, 8192, True),
    "3b": _model(28, 3072, 24, 8, 8192, True),
}
SHAPES = (("1", "none"), ("1", "full"), ("2", "none"), ("4", "none"), ("4", "full"))
HEAD = """# The executor beside the judge

Made by `python benchmarks/executor.py`: Llama models of {tokens} tokens a sequence,
{sequences} sequences a step, trained by `hetopt run` in bf16 on one card. Nothing was
fitted to these runs (constants saw runs of another program in plain PyTorch on an H100,
and none on an H200): predictions are those of the model of today, by `hetopt assemble
-o framework=executor`, which counts the bytes of the executor's own loss, rotary
positions and AdamW. Seconds are the median of steps but the first; memory is what
PyTorch has had of the GPU at the most (no CUDA context), beside the judge's, which
leaves room for fragments.

Measured, the H200 is 5% faster than the H100, predicted 12%: what passes through memory
does not gain in proportion to the sheets' 4.8 and 3.35 TB/s. The loss of PyTorch took
the H200 the time of 63 bytes a logit at its sheet's rate, the H100 that of 57; at 4.2
TB/s predictions would be 5% too fast in place of 9. Products and attention, as
`hetopt profile` measured them on that H200, move none of its predictions by more than
0.1%. No public run of eager PyTorch on an H200 decides it, so no constant has it;
intervals are wider on a card that a framework was not seen on. What is far off is bound
by the host, whose speed is not in the model (500m, one sequence at a time).
"""


def make(folder: Path, host: str) -> None:
    """Plans of every model and shape."""
    import hetopt
    from hetopt.formats import importing
    from hetopt.formats.assembling import Listed, assembly

    folder.mkdir(parents=True, exist_ok=True)
    hosts = folder / "hosts"
    hosts.write_text(host + "\n", encoding="utf-8")
    for name, config in MODELS.items():
        for size, rule in SHAPES:
            place = folder / f"{name}-{size}-{rule}"
            (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
            options = ["framework=executor", "zero=0", f"recompute={rule}"]
            work = {"sequence_length": TOKENS, "global_batch": SEQUENCES}
            work["micro_batch_sizes"] = [int(size)]  # type: ignore[assignment]
            made = assembly(
                folder / "config.json",
                Listed("hostfile", [hosts]),
                options,
                work,
                name=name,
            )
            importing.write(place.with_suffix(".yaml"), made.document)
            found = hetopt.plan(place.with_suffix(".yaml"), limits=5)
            place.with_suffix(".yaml").unlink()
            if found.plan is not None:
                text = json.dumps(found.to_file())
                place.with_suffix(".json").write_text(text, encoding="utf-8")


def predicted(place: Path) -> Row:
    """Return what the model of today says of a plan."""
    from hetopt.api.judging import posed_training
    from hetopt.problems import training_plan

    judged = training_plan.evaluate(*posed_training(place, None)).parts
    return {
        "predicted_s": judged["iteration_us"] / 1e6,
        "low_s": judged["low_s"],
        "high_s": judged["high_s"],
        "predicted_mib": max(judged["peak_memory_mib"].values()),
    }


def _predicted_anew(card: str) -> dict[str, Row]:
    """Return what the model of today says of every plan on a card."""
    from hetopt.catalogue import find_gpu

    known = find_gpu(card)
    assert known is not None
    with TemporaryDirectory() as name:
        make(Path(name), f"h1 slots=1 type={known.name}")
        return {place.stem: predicted(place) for place in Path(name).glob("*-*.json")}


def run(folder: Path, steps: int) -> Iterator[Row]:
    """Train by every plan of the folder."""
    import torch

    import hetopt

    for place in sorted(folder.glob("*-*.json")):
        row: Row = {"plan": place.stem, "card": torch.cuda.get_device_name(0)}
        row |= {"torch": torch.__version__, **predicted(place)}
        try:
            ran = hetopt.run(place, steps=steps)
        except hetopt.HetoptError as error:
            yield row | {"error": str(error).splitlines()[0]}
            continue
        yield row | {
            "median_s": ran.median_s,
            "memory_mib": ran.steps[-1]["memory_mib"],
        }


def write_page() -> None:
    """Write the page, a section a card, from the latest row of each plan on it.

    Cards are measured at different times: all are predicted by the model of today.
    """
    from _measuring import publish

    lines = [json.loads(x) for x in (RESULTS / LINES).open(encoding="utf-8")]
    cards: dict[str, dict[str, Row]] = {}
    for row in lines:
        cards.setdefault(row["card"], {})[row["plan"]] = row
    text = [HEAD.format(tokens=TOKENS, sequences=SEQUENCES)]
    for card, rows in cards.items():
        for plan, told in _predicted_anew(card).items():
            if plan in rows:
                rows[plan] |= told
        text += ["", f"## {card}", "", *_section([*rows.values()])]
    publish(PAGE, "\n".join([*text, ""]), LINES)


def _section(rows: list[Row]) -> Iterator[str]:
    """Yield the lines about the runs on one card."""
    from _pages import grid

    ran = [row for row in rows if "median_s" in row]
    cells = [
        [
            *row["plan"].split("-"),
            f"{row['median_s']:.3f} s",
            f"{row['predicted_s']:.3f} s",
            f"{row['predicted_s'] / row['median_s'] - 1:+.1%}",
            f"{row['memory_mib'] / 1024:.1f} GiB",
            f"{row['predicted_mib'] / 1024:.1f} GiB",
            f"{row['predicted_mib'] / row['memory_mib'] - 1:+.1%}",
        ]
        for row in ran
    ]
    headers = ("model", "micro-batch", "recompute", "measured", "predicted", "error")
    yield from grid((*headers, "memory", "the judge's", "error"), cells)
    errors = [abs(row["predicted_s"] / row["median_s"] - 1) for row in ran]
    weights = [abs(row["predicted_mib"] / row["memory_mib"] - 1) for row in ran]
    inside = sum(row["low_s"] <= row["median_s"] <= row["high_s"] for row in ran)
    yield (
        f"\nPyTorch {rows[0]['torch']}. Mean of the sizes of errors: time "
        f"{statistics.mean(errors):.1%}, memory {statistics.mean(weights):.1%}; "
        f"{inside} of {len(ran)} inside the interval of 80%."
    )
    for row in rows:
        if "error" in row:
            yield f"\n{row['plan']}: {row['error']}"


def main() -> None:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make", type=Path, metavar="FOLDER")
    parser.add_argument("--host", default="h1 slots=1 type=H100-80GB-SXM5")
    parser.add_argument("--run", type=Path, metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--out", type=Path, default=RESULTS / LINES)
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    from _measuring import commit

    if asked.make:
        make(asked.make, asked.host)
    if asked.run:
        for row in run(asked.run, asked.steps):
            print(json.dumps(row), flush=True)
            with asked.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**row, "commit": commit()}) + "\n")
    if asked.page:
        write_page()


if __name__ == "__main__":
    main()
