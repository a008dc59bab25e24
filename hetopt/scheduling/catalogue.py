"""Frenzy's two clusters, the GPUs that they have, and the models of its workload.

Memory is the product's nominal size taken as 10^9 bytes a GB, which the paper's own
example needs (GPT-2 7B at batch 2 takes 8 A100-40G; with 2^30 bytes 4 would do).
Efficiency 0.4 of the peak is ours, and so are links where the paper names none.
"""

from ..catalogue import Variant, family, find_gpu, model, near
from ..errors import UnknownName
from ..problems.job_scheduling import JobModel
from ..schema import Cluster, GpuType, Inter, ModelSpec, Node

EFFICIENCY = 0.4


GPUS = family("frenzy")


def sheet(name: str) -> Variant:
    """Return a GPU of `GPUS`, or any card of the catalogue as its data sheet has it.

    `UnknownName` for a name that is none or stands for several cards.
    """
    if name in GPUS:
        return GPUS[name]
    if (card := find_gpu(name)) is None:
        raise UnknownName("GPU", name, near(name))
    return Variant(
        card=card.name,
        tflops=card.peak_tflops,
        memory_gib=card.memory_gib,
        intra_gbytes_per_s=card.link_gbytes_per_s,
    )


def gpu_type(name: str) -> GpuType:
    """Return a GPU of `sheet` in an instance."""
    gpu = sheet(name)
    gib = round(gpu.memory_gib * 10**9 / 2**30 - 0.005, 2)  # rounded down
    return GpuType(peak_tflops=gpu.tflops, memory_gib=gib, efficiency=EFFICIENCY)


def cluster(nodes: list[tuple[str, int]], gbytes_per_s: float) -> Cluster:
    """Nodes of (type, GPUs), numbered in order, with one link speed between them."""
    return Cluster(
        gpus={name: gpu_type(name) for name, _ in nodes},
        nodes=tuple(
            Node(
                name=f"node{number}",
                gpu=gpu,
                count=count,
                intra_gbytes_per_s=sheet(gpu).intra_gbytes_per_s if count > 1 else None,
            )
            for number, (gpu, count) in enumerate(nodes)
        ),
        inter=Inter(gbytes_per_s=gbytes_per_s),
    )


def simulator() -> Cluster:
    """The cluster of its simulations and of Sia: 44 GPUs, 50 Gb/s between nodes."""
    return cluster(
        [*[("RTX2080Ti", 8)] * 3, *[("A100-40G", 8)] * 2, ("RTX6000", 4)], 6.25
    )


def testbed() -> Cluster:
    """Return the paper's testbed: 5 nodes, 11 GPUs; the 25 Gb/s are our choice."""
    nodes = [("A100-40G-PCIe", 2), ("A100-40G-PCIe", 1), ("A800-80G", 4)]
    return cluster([*nodes, *[("A100-80G-PCIe", 2)] * 2], 3.125)


# The sizes of GPT-2 and BERT, each with the batch of a job that is mapped to it.
LADDER = {
    "bert-base": 32,
    "gpt2": 16,
    "bert-large": 16,
    "gpt2-medium": 8,
    "gpt2-large": 8,
    "gpt2-xl": 8,
    "gpt2-7b": 2,
}


def job_model(name: str) -> JobModel:
    """Return a preset as jobs train it: sequences of 512 (BERT) or 1024."""
    spec = ModelSpec.model_validate(model(name))
    return JobModel(spec=spec, sequence_length=512 if "bert" in name else 1024)
