"""Calibrated times once more, in floats: whole runs in place of parts of layers.

`hetopt.physics` times the mean layer of a symmetric run; here a run has layers of one
kind alone, and the tables' own reading of an instance is not used.
"""

from dataclasses import replace
from typing import Any

from hetopt.calibration.constants import Table
from hetopt.physics import kernels
from hetopt.physics.architecture import Architecture
from hetopt.physics.layout import Layout
from hetopt.physics.machine import Machine
from hetopt.physics.step import layer_times
from hetopt.schema import Instance


class FloatTimes:
    """Seconds of layers and of the head of one instance, under one rule."""

    def __init__(self, instance: Instance, rule: str) -> None:
        """`rule` is how layers are recomputed."""
        self.instance, self.rule = instance, rule
        self.model, self.costs = instance.model, instance.workload.costs
        self.cluster = instance.planned_cluster
        assert self.costs.calibration is not None
        self.calibration = self.costs.calibration
        self.constant = Table(self.calibration.constants)

    def shape(self, layer: int) -> Architecture:
        """A model of two layers like this one."""
        m = self.model
        inner = m.intermediate or 4 * m.hidden
        sparse = bool(m.experts) and layer >= m.dense_layers
        width = m.expert_intermediate or inner
        return Architecture(
            layers=(("attention", "experts" if sparse else "dense"),) * 2,
            hidden=m.hidden,
            heads=m.heads,
            kv_heads=m.kv_heads or m.heads,
            head_dim=m.head_dim or m.hidden // m.heads,
            intermediate=inner,
            gated=m.gated,
            vocabulary=m.vocabulary,
            experts=m.experts or 0,
            experts_per_token=m.active_experts or 0,
            expert_intermediate=width,
            shared_intermediate=m.shared_experts * width,
        )

    def machine(self, node: str) -> Machine:
        """One node alone."""
        spec = self.cluster.node[node]
        gpu = self.cluster.gpus[spec.gpu]
        assert gpu.card
        assert gpu.generation
        assert gpu.peaks
        assert gpu.memory_gbytes_per_s
        flops = {name: 1e12 * tflops for name, tflops in gpu.peaks.items()}
        link = 1e9 * (spec.intra_gbytes_per_s or 1.0)
        many = spec.count
        return Machine(
            gpu.card, gpu.generation, flops, 1e9 * gpu.memory_gbytes_per_s,
            gpu.memory_gib, many, many, link, many, link,
        )  # fmt: skip

    def run(self, node: str, t: int, b: int, rule: str) -> Layout:
        """The run that the group is one of."""
        gpu = self.cluster.gpus[self.cluster.node[node].gpu]
        said: Any = self.calibration.kernel
        if said == "none" or "bf16" not in (gpu.peaks or {}):
            said = None
        return Layout(
            self.calibration.framework, self.calibration.style,
            self.calibration.precision, self.instance.workload.sequence_length, b, 1,
            tp=t, recompute=rule, kernel=said,
            split_sequence=self.costs.sequence_parallel,
        )  # fmt: skip

    def layer(
        self, layer: int, node: str, t: int, b: int, behind: bool = False
    ) -> float:
        """Both passes of a layer, or the backward one."""

        def both(rule: str) -> float:
            shape, run = self.shape(layer), self.run(node, t, b, rule)
            times = layer_times(self.constant, self.machine(node), shape, run)
            more = (times.products + times.experts) * (self.share(layer) - 1)
            host = times.launches  # beside the device
            device = sum(times) - host + more
            return (device**2 + host**2) ** 0.5 * self.pace

        whole = both(self.rule)
        if not behind:
            return whole
        run = self.run(node, t, b, "none")
        times = layer_times(self.constant, self.machine(node), self.shape(layer), run)
        first = both("full") - both("none") + times.launches * self.pace / 3
        return max(0.0, whole - first)

    def share(self, layer: int) -> float:
        """Parameters that are told over those of the shape."""
        m, shape = self.model, self.shape(layer)
        told = m.layer_parameters, m.parameters_per_layer, m.active_layer_parameters
        if not any(told):
            return 1.0
        own = replace(shape, layers=shape.layers[:1]).active
        return m.active_parameters[layer] / own

    @property
    def pace(self) -> float:
        """Of layers, where there are several GPUs."""
        if sum(node.count for node in self.cluster.nodes) == 1:
            return 1.0
        return self.constant("pace", self.calibration.framework)

    def head(self, node: str, t: int, b: int) -> float:
        """Head and loss."""
        if not self.model.vocabulary:
            return 0.0
        by = (self.calibration.style, self.calibration.framework)
        shape, tokens = self.shape(0), b * self.instance.workload.sequence_length
        machine = self.machine(node)
        return kernels.head_s(self.constant, machine, shape, tokens, t, by, False)
