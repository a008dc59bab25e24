"""What Sailor reads of an export, and what its controller tells the agents.

`launch.py` is run as it is, with Sailor's own local controller; only the wire is not
there: messages are kept instead of being sent, agents are ready at once, and the
endless sleep behind the last message is the end.
"""

import contextlib
import json
import runpy
import sys
import types
from pathlib import Path

from absent import stand_in

stand_in(
    "deepspeed",
    "sailor.Worker.elastic_worker_agent",
    "sailor.Planner.sailor_planner.cpp_src.planner",
    "sailor.providers.gcp.model_networking",
)


class Message(types.SimpleNamespace):
    """Any message of its protocol."""


def messages():
    module = types.ModuleType("sailor.protos.orchestration_pb2")
    for name in ("ReplicaConfig", "StageConfig", "WorkerConfiguration", "HyperParams"):
        setattr(module, name, Message)
    stubs = types.ModuleType("sailor.protos.orchestration_pb2_grpc")
    stubs.WorkerAgentStub = stubs.MasterControllerStub = Message
    package = types.ModuleType("sailor.protos")
    package.orchestration_pb2 = module
    sys.modules["sailor.protos"] = package
    sys.modules["sailor.protos.orchestration_pb2"] = module
    sys.modules["sailor.protos.orchestration_pb2_grpc"] = stubs


def simulated():
    """The plan as its simulator has it."""
    from sailor.Planner.simulations.runtime_simulator import convert_homogeneous

    plan = convert_homogeneous(json.loads(Path("sailor_plan.json").read_text()), {})
    (pipeline,) = plan.pipeline_list
    return {
        "samples": plan.mbs,
        "layers": pipeline.layers_per_stage,
        "stages": [
            [[one.tmp, one.vm_list[0].gpu_type] for one in stage]
            for stage in pipeline.tmp_configs
        ],
    }


def started():
    """Host and configuration of every message of the controller."""
    from sailor.Controller.local import local_controller as controller

    sent = []

    def keep(self, node, told, settings, address, port):
        stages = [[r.replica_ranks for r in one.stage_replicas]
                  for one in told.all_stages]  # fmt: skip
        sent.append(
            {
                "host": node,
                "ranks": told.ranks,
                "world": told.world_size,
                "head": told.master_ip,
                "stages": stages,
                "layers": told.layers_per_stage,
                "batch": settings.global_batch_size,
                "samples": settings.micro_batch_size,
                "steps": settings.ga_steps,
            }
        )

    def end(seconds):
        raise SystemExit(0)

    controller.LocalController.notify_topology_change = keep
    controller.LocalController.check_if_ready = lambda self, node: True
    controller.time.sleep = end
    sys.argv = ["launch.py", sys.argv[1]]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(sys.stderr):
        runpy.run_path("launch.py", run_name="__main__")
    return sorted(sent, key=lambda one: one["ranks"])


messages()
sys.stdout.write(json.dumps({"read": simulated(), "sent": started()}) + "\n")
