"""Checkpoints lie on media after a change of the cluster, and are read at some rate."""

from typing import Annotated, Literal

from pydantic import Field

from ...schema import GbytesPerS, Record


class Storage(Record):
    """Storage says where checkpoints lie, and rates of media in 10^9 bytes/s.

    The disk's, the cloud's and the network's are the paper's figures. It gives none
    for host memory: 50 GB/s is two PCIe 4.0 x16 links at work. The network's speed is
    the instance's where it has links between nodes.
    """

    media: Annotated[tuple[Literal["memory", "disk"], ...], Field(min_length=1)] = (
        "disk",
    )
    memory_gbytes_per_s: GbytesPerS = 50
    disk_gbytes_per_s: GbytesPerS = 3.5
    network_gbytes_per_s: GbytesPerS = 50
    cloud_gbytes_per_s: GbytesPerS | None = Field(
        default=1.2, description="None where there is no cloud."
    )
    cloud_limit: Literal["shared", "each_node"] = "shared"
    loads: Literal["each_gpu", "once_a_node"] = "each_gpu"
    bytes_per_parameter: Annotated[int, Field(ge=1, le=64)] = 14
    unsaved: tuple[str, ...] = Field(
        default=(), description="Nodes that had not written the last checkpoint."
    )
