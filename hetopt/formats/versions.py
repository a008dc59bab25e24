"""Which releases of each target exports were held against, and which is the oldest."""

from collections.abc import Mapping
from importlib import metadata
from types import MappingProxyType
from typing import NamedTuple


class Held(NamedTuple):
    """What exports were held against; `oldest` may be by its notes or source alone.

    `package` is its name in the package index, None where it is no package.
    """

    tool: str
    oldest: str
    held: tuple[str, ...]
    package: str | None = None

    @property
    def installed(self) -> str | None:
        """The release on this machine; None where there is none, or no telling."""
        if self.package is None:
            return None
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return None


#: By the names of targets. Uneven stages of Megatron-LM need 0.13, or 0.12 by the
#: older arguments that stand beside the layout.
HELD: Mapping[str, Held] = MappingProxyType(
    {
        "accelerate": Held("Accelerate", "1.10", ("1.15.0",), "accelerate"),
        "deepspeed": Held("DeepSpeed", "0.15", ("0.19.8",), "deepspeed"),
        "flagscale": Held("FlagScale", "0.8.0", ("0.8.0 (16a2dd5)", "main (da4935e)")),
        "galvatron": Held(
            "Hetu-Galvatron", "2.0", ("2.4.0", "main (cea12ff)"), "hetu-galvatron"
        ),
        "hexiscale": Held("FlashFlex", "5ee1726", ("5ee1726",)),
        "jobset": Held("JobSet", "v1alpha2", ("v1alpha2 (08dfbdf)",)),
        "kueue": Held("Kueue", "v1beta2", ("v1beta2 (ff69552)",)),
        "llamafactory": Held(
            "LLaMA-Factory", "0.9.3", ("0.9.5, by its source",), "llamafactory"
        ),
        "megatron": Held(
            "Megatron-LM",
            "core 0.12.0",
            ("core 0.12.0", "core 0.13.0", "core 0.16.1", "0.20.0 (d98e8a6)"),
            "megatron-core",
        ),
        "megatron_bridge": Held(
            "Megatron-Bridge",
            "0.4.2",
            ("0.6.0, by its source",),
            "megatron-bridge",
        ),
        "ray": Held("Ray", "2.49", ("2.60.0",), "ray"),
        "sailor": Held("Sailor", "cf2c8e3", ("cf2c8e3",)),
        "skypilot": Held("SkyPilot", "0.9", ("0.14.1",), "skypilot"),
        "slurm": Held("Slurm", "20.02", ("22.05.8",)),
        "torchrun": Held("PyTorch", "2.5", ("2.11 (CUDA)", "2.13 (CPU)"), "torch"),
        "torchtitan": Held("torchtitan", "0.2.2", ("0.2.2", "0.3.0"), "torchtitan"),
        "transformers": Held("transformers", "5.0", ("5.24.0",), "transformers"),
        "volcano": Held("Volcano", "v1alpha1", ("v1alpha1 (ed72c7c)",)),
    }
)
