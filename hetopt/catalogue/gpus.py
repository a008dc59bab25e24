"""Common GPUs: peak dense 16-bit TFLOP/s, memory, links, and where each figure is from.

`peak_tflops` is the dense tensor-core rate in fp16 or bf16 (never the rate with
sparsity); `pcie_gbytes_per_s` that of the card's x16 bus in one direction (PCIe 3.0,
4.0, 5.0: 15.75, 31.5, 63); `nvlinks` and `nvlink_gbytes_per_s` count the links and give
one link's rate in one direction. The rates of links are peaks: measured ones are lower,
and an importer's `intra_gbytes_per_s` takes them.
"""

from difflib import get_close_matches
from typing import NamedTuple

from ..errors import InstanceError

_GEN3, _GEN4, _GEN5 = 15.75, 31.5, 63.0


class Gpu(NamedTuple):
    """One card; `products` are the names by which nvidia-smi knows it.

    The NVLinks of a `bridged` card work only where a bridge was bought with it.
    """

    peak_tflops: float
    memory_gib: float
    pcie_gbytes_per_s: float
    nvlinks: int
    nvlink_gbytes_per_s: float
    products: tuple[str, ...]
    source: str
    bridged: bool = False

    @property
    def link_gbytes_per_s(self) -> float:
        """All NVLinks of the card in one direction, else its bus."""
        if self.nvlinks and not self.bridged:
            return self.nvlinks * self.nvlink_gbytes_per_s
        return self.pcie_gbytes_per_s


def _plain(
    tflops: float, gib: float, bus: float, products: tuple[str, ...], source: str
) -> Gpu:
    return Gpu(tflops, gib, bus, 0, 0.0, products, source)


_A100 = (
    "NVIDIA A100 data sheet (2022): 312 TFLOPS fp16 dense, NVLink 600 GB/s both ways"
)
_H100 = (
    "NVIDIA H100 data sheet (2023): SXM 1979, PCIe 1513 TFLOPS fp16 with sparsity; "
    "NVLink 900 and 600 GB/s both ways"
)
_A10G = (
    "AWS's A10G data sheet (2022), as others cite it: 70 TFLOPS fp16 dense; some "
    "tables say 62.5, some the A10's 125"
)
_AMPERE = "NVIDIA Ampere GA102 whitepaper (2021), appendix A: fp16 with fp32 accumulate"
_ADA_PRO = "NVIDIA RTX 6000 Ada data sheet (2022): a quarter of 1457 fp8 TFLOPS, sparse"
_ADA = "NVIDIA Ada GPU architecture whitepaper (2023), appendix A: fp32 accumulate"

GPUS: dict[str, Gpu] = {
    "P100-16GB-PCIe": _plain(
        18.7,
        16,
        _GEN3,
        ("Tesla P100-PCIE-16GB",),
        "NVIDIA Tesla P100 data sheet (2016)",
    ),
    "P100-16GB-SXM2": Gpu(
        21.2,
        16,
        _GEN3,
        4,
        20.0,
        ("Tesla P100-SXM2-16GB",),
        "NVIDIA Tesla P100 data sheet (2016): NVLink 160 GB/s both ways",
    ),
    "V100-16GB-PCIe": _plain(
        112, 16, _GEN3, ("Tesla V100-PCIE-16GB",), "NVIDIA V100 data sheet (2020)"
    ),
    "V100-32GB-PCIe": _plain(
        112, 32, _GEN3, ("Tesla V100-PCIE-32GB",), "NVIDIA V100 data sheet (2020)"
    ),
    "V100-16GB-SXM2": Gpu(
        125,
        16,
        _GEN3,
        6,
        25.0,
        ("Tesla V100-SXM2-16GB",),
        "NVIDIA V100 data sheet (2020): NVLink 300 GB/s both ways",
    ),
    "V100-32GB-SXM2": Gpu(
        125,
        32,
        _GEN3,
        6,
        25.0,
        ("Tesla V100-SXM2-32GB",),
        "NVIDIA V100 data sheet (2020): NVLink 300 GB/s both ways",
    ),
    "T4": _plain(65, 16, _GEN3, ("Tesla T4",), "NVIDIA T4 data sheet (2019)"),
    "A10": _plain(125, 24, _GEN4, ("NVIDIA A10",), "NVIDIA A10 data sheet (2021)"),
    "A10G": _plain(70, 24, _GEN4, ("NVIDIA A10G",), _A10G),
    "A30": Gpu(
        165,
        24,
        _GEN4,
        4,
        25.0,
        ("NVIDIA A30",),
        "NVIDIA A30 data sheet (2021): NVLink 200 GB/s both ways",
        bridged=True,
    ),
    "A40": Gpu(
        149.7,
        48,
        _GEN4,
        4,
        14.0625,
        ("NVIDIA A40",),
        "NVIDIA A40 data sheet (2021): NVLink 112.5 GB/s both ways",
        bridged=True,
    ),
    "A100-40GB-PCIe": Gpu(
        312,
        40,
        _GEN4,
        12,
        25.0,
        ("NVIDIA A100-PCIE-40GB",),
        _A100 + "",
        bridged=True,
    ),
    "A100-80GB-PCIe": Gpu(
        312,
        80,
        _GEN4,
        12,
        25.0,
        ("NVIDIA A100 80GB PCIe",),
        _A100 + "",
        bridged=True,
    ),
    "A100-40GB-SXM4": Gpu(312, 40, _GEN4, 12, 25.0, ("NVIDIA A100-SXM4-40GB",), _A100),
    "A100-80GB-SXM4": Gpu(312, 80, _GEN4, 12, 25.0, ("NVIDIA A100-SXM4-80GB",), _A100),
    "A800-80GB-PCIe": Gpu(
        312,
        80,
        _GEN4,
        8,
        25.0,
        ("NVIDIA A800 80GB PCIe",),
        "NVIDIA A800 data sheet (2022): NVLink 400 GB/s both ways",
        bridged=True,
    ),
    "A800-80GB-SXM4": Gpu(
        312,
        80,
        _GEN4,
        8,
        25.0,
        ("NVIDIA A800-SXM4-80GB",),
        "NVIDIA A800 data sheet (2022): NVLink 400 GB/s both ways",
    ),
    "H100-80GB-PCIe": Gpu(
        756.5,
        80,
        _GEN5,
        12,
        25.0,
        ("NVIDIA H100 PCIe",),
        _H100 + "",
        bridged=True,
    ),
    "H100-80GB-SXM5": Gpu(
        989.5, 80, _GEN5, 18, 25.0, ("NVIDIA H100 80GB HBM3",), _H100
    ),
    "H800-80GB-SXM5": Gpu(
        989.5,
        80,
        _GEN5,
        8,
        25.0,
        ("NVIDIA H800",),
        "Hardware tables of LLM-Prof and LLMRoofline (2024): 989.5 TFLOPS fp16 dense, "
        "as H100, NVLink 400 GB/s both ways",
    ),
    "H200-141GB-SXM5": Gpu(
        989.5,
        141,
        _GEN5,
        18,
        25.0,
        ("NVIDIA H200",),
        "NVIDIA H200 data sheet (2023): 1979 TFLOPS fp16 with sparsity",
    ),
    "H20-96GB-SXM5": Gpu(
        148,
        96,
        _GEN5,
        18,
        25.0,
        ("NVIDIA H20",),
        "Hardware tables of LLM-Prof and LLMRoofline (2024): 148 TFLOPS fp16 dense, "
        "NVLink 900 GB/s both ways",
    ),
    "B200-180GB-SXM": Gpu(
        2250,
        180,
        _GEN5,
        18,
        50.0,
        ("NVIDIA B200",),
        "NVIDIA DGX B200 data sheet (2024): 18 PFLOPS fp16 dense and 1.44 TB of 8 GPUs",
    ),
    "GH200-96GB": Gpu(
        989.5,
        96,
        _GEN5,
        18,
        25.0,
        ("NVIDIA GH200 480GB",),
        "NVIDIA GH200 data sheet (2023): 1979 TFLOPS fp16 with sparsity",
    ),
    "MI300X": Gpu(
        1307.4,
        192,
        _GEN5,
        7,
        64.0,
        ("AMD Instinct MI300X",),
        "AMD Instinct MI300X data sheet (2023): 7 links of 128 GB/s both ways",
    ),
    "L20": _plain(
        119.5,
        48,
        _GEN4,
        ("NVIDIA L20",),
        "Hardware tables of LLM-Prof and LLMRoofline (2024): 119.5 TFLOPS fp16 dense",
    ),
    "L4": _plain(121, 24, _GEN4, ("NVIDIA L4",), "NVIDIA L4 data sheet (2023)"),
    "L40": _plain(181, 48, _GEN4, ("NVIDIA L40",), "NVIDIA L40 data sheet (2022)"),
    "L40S": _plain(362, 48, _GEN4, ("NVIDIA L40S",), "NVIDIA L40S data sheet (2023)"),
    "RTX3090": Gpu(
        71,
        24,
        _GEN4,
        4,
        14.0625,
        ("NVIDIA GeForce RTX 3090",),
        _AMPERE + "; NVLink 112.5 GB/s both ways",
        bridged=True,
    ),
    "RTX4090": _plain(165.2, 24, _GEN4, ("NVIDIA GeForce RTX 4090",), _ADA),
    "RTX6000-Ada": _plain(
        364.2, 48, _GEN4, ("NVIDIA RTX 6000 Ada Generation",), _ADA_PRO
    ),
    "RTXA4000": _plain(
        76.7, 16, _GEN4, ("NVIDIA RTX A4000",), "NVIDIA RTX A4000 data sheet (2021)"
    ),
    "RTXA5000": Gpu(
        111.1,
        24,
        _GEN4,
        4,
        14.0625,
        ("NVIDIA RTX A5000",),
        "NVIDIA RTX A5000 data sheet (2021): NVLink 112.5 GB/s both ways",
        bridged=True,
    ),
    "RTXA6000": Gpu(
        154.8,
        48,
        _GEN4,
        4,
        14.0625,
        ("NVIDIA RTX A6000",),
        "NVIDIA RTX A6000 data sheet (2021): NVLink 112.5 GB/s both ways",
        bridged=True,
    ),
}


def named(name: str, place: str) -> str:
    """The catalogue's name of a product or an abbreviation; refused where unclear.

    `A100` alone stands for four cards: the `InstanceError` lists them.
    """
    wanted = _plainly(name)
    for known, gpu in GPUS.items():
        if wanted in {_plainly(known), *map(_plainly, gpu.products)}:
            return known
    fits = [known for known in GPUS if _plainly(known.partition("-")[0]) == wanted]
    if len(fits) == 1:
        return fits[0]
    near = fits or get_close_matches(name, list(GPUS), n=5, cutoff=0.3) or list(GPUS)
    raise InstanceError(
        f"{place}: found GPU {name!r}, expected one of {', '.join(near)}; say which it "
        f"is with the option types={name}:{near[0]}, or give its figures, "
        f"types={name}:TFLOPS/GIB"
    )


def _plainly(name: str) -> str:
    """Lower case, without the maker, blanks, dashes: `NVIDIA A10` is `a10`."""
    text = name.lower().removeprefix("nvidia ").removeprefix("tesla ")
    return "".join(letter for letter in text if letter.isalnum())
