"""The cards of SkyPilot's catalogues, by the names that it gives them.

`A100` is there the card of 40 GB, `V100` that of 16 GB; the figures are those of
`gpu_catalogue`.
"""

from ..catalogue.gpus import GPUS, Gpu

Card = Gpu

_MEANT = {
    "A100": "A100-40GB-SXM4",
    "A100-80GB": "A100-80GB-PCIe",
    "A100-80GB-SXM": "A100-80GB-SXM4",
    "GH200": "GH200-96GB",
    "B200": "B200-180GB-SXM",
    "H100": "H100-80GB-SXM5",
    "H100-SXM": "H100-80GB-SXM5",
    "H200": "H200-141GB-SXM5",
    "H200-SXM": "H200-141GB-SXM5",
    "P100": "P100-16GB-PCIe",
    "A4000": "RTXA4000",
    "A5000": "RTXA5000",
    "A6000": "RTXA6000",
    "V100": "V100-16GB-SXM2",
    "V100-32GB": "V100-32GB-SXM2",
}
CARDS: dict[str, Gpu] = {
    **GPUS,
    **{name: GPUS[card] for name, card in _MEANT.items()},
}
