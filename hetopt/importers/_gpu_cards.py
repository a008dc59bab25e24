"""Known data-centre and workstation cards: what a price list leaves out or gets wrong.

Peak dense 16-bit TFLOP/s and memory in GiB, from the makers' data sheets. Names are
those of SkyPilot's catalogues.
"""

from typing import NamedTuple


class Card(NamedTuple):
    """One card."""

    peak_tflops: float
    memory_gib: float


CARDS: dict[str, Card] = {
    "A10": Card(125, 24),
    "A10G": Card(70, 24),
    "A100": Card(312, 40),
    "A100-80GB": Card(312, 80),
    "A100-80GB-SXM": Card(312, 80),
    "A30": Card(165, 24),
    "A40": Card(149.7, 48),
    "B200": Card(2250, 180),
    "GH200": Card(989, 96),
    "H100": Card(989, 80),
    "H100-SXM": Card(989, 80),
    "H200": Card(989, 141),
    "H200-SXM": Card(989, 141),
    "L4": Card(121, 24),
    "L40": Card(181, 48),
    "L40S": Card(362, 48),
    "MI300X": Card(1307, 192),
    "P100": Card(18.7, 16),
    "RTX3090": Card(142, 24),
    "RTX4090": Card(165.2, 24),
    "RTX6000-Ada": Card(364, 48),
    "RTXA4000": Card(76.7, 16),
    "RTXA5000": Card(111, 24),
    "RTXA6000": Card(154.8, 48),
    "A4000": Card(76.7, 16),
    "A5000": Card(111, 24),
    "A6000": Card(154.8, 48),
    "T4": Card(65, 16),
    "V100": Card(125, 16),
    "V100-32GB": Card(125, 32),
}
