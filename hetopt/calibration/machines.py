"""The machine of a run: its card's usual one, unless the row says otherwise."""

import re
from collections.abc import Callable

from ..physics.machine import Machine
from .runs import Run

T, G = 1e12, 1e9
# TEMPORARY: until the catalogue has them.
_CARDS = {
    "v100_16gb": ("V100", "Volta", dict(fp16=125), 900, 16, 4, 4, 75, 4, 12.5),
    "v100_32gb": ("V100", "Volta", dict(fp16=125), 900, 32, 4, 4, 75, 4, 12.5),
    "a100_40gb": ("A100", "Ampere", dict(fp16=312, bf16=312), 1555, 40, 8, 8, 300, 8, 25),
    "a100_80gb": ("A100", "Ampere", dict(fp16=312, bf16=312), 2039, 80, 8, 8, 300, 8, 25),
    "h100_80gb": ("H100", "Hopper", dict(fp16=989.5, bf16=989.5, fp8=1979), 3350, 80, 8, 8, 450, 8, 50),
    "h100_96gb": ("H100-500W", "Hopper", dict(fp16=989.5, bf16=989.5, fp8=1979), 2400, 96, 8, 8, 450, 8, 50),
    "h200": ("H200", "Hopper", dict(fp16=989.5, bf16=989.5, fp8=1979), 4800, 141, 8, 8, 450, 8, 50),
    "b200": ("B200", "Blackwell", dict(fp16=2250, bf16=2250, fp8=4500, mxfp8=4500, nvfp4=9000), 8000, 180, 8, 8, 900, 8, 50),
    "gb200": ("GB200", "Blackwell", dict(fp16=2500, bf16=2500, fp8=5000, mxfp8=5000, nvfp4=10000), 8000, 186, 72, 72, 900, 72, 50),
    "gb300": ("GB300", "Blackwell", dict(fp16=2500, bf16=2500, fp8=5000, mxfp8=5000, nvfp4=15000), 8000, 279, 72, 72, 900, 72, 100),
    "l40s": ("L40S", "Ada", dict(fp16=362, bf16=362, fp8=733), 864, 48, 8, 8, 20, 2, 50),
}


def of(run: Run, error: Callable[[str], Exception]) -> Machine:
    name = (run.gpu or "").lower()
    key = next((k for k in sorted(_CARDS, key=len, reverse=True) if name.startswith(k)), None)
    if key is None:
        raise error(f"card {run.gpu!r} is not in the catalogue")
    card, gen, tf, bw, gib, gpus, domain, link, ad, rate = _CARDS[key]
    if "bigscience-a100" in (run.set or ""):
        ad, rate = 4, 12.5
    if found := re.match(r"(\d+) ?gbps", (run.network or "").lower()):
        rate = int(found.group(1)) / 8 / ad
    return Machine(card, gen, {k: v * T for k, v in tf.items()}, bw * G, gib, gpus, domain, link * G, ad, rate * G, "arm" if card.startswith("G") else "x86", 1 if "V100" in card else 64)
