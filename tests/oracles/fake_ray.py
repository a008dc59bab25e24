"""A stand-in for Ray that tells what it was asked."""

from pathlib import Path

RAY = {
    "ray/__init__.py": """\
import json, os, types
def tell(*words):
    with open(os.environ["TOLD"], "a") as file:
        print(json.dumps(words), file=file)
def init(**options): tell("init", options)
def get(value): return value
def nodes():
    there = {"Alive": True, "NodeManagerAddress": "10.0.0.7", "Resources": {"GPU": 8.0}}
    return [there, {**there, "Alive": False}]
def remote(function):
    class Remote:
        def options(self, **options):
            bundle = options["scheduling_strategy"].bundle
            tell("on", bundle, options["num_gpus"])
            def elsewhere(*words):  # a worker has not the driver's environment
                driver = dict(os.environ)
                os.environ.pop("ARGS", None)
                done = function(*words)
                os.environ.update(driver)
                return done
            return types.SimpleNamespace(remote=elsewhere)
    return Remote()
""",
    "ray/util/__init__.py": 'def get_node_ip_address(): return "10.0.0.1"\n',
    "ray/util/placement_group.py": """\
import ray
class Group:
    def wait(self, seconds): return True
def placement_group(bundles, **options):
    ray.tell("group", bundles, options)
    return Group()
""",
    "ray/util/scheduling_strategies.py": """\
class PlacementGroupSchedulingStrategy:
    def __init__(self, placement_group, placement_group_bundle_index):
        self.bundle = placement_group_bundle_index
""",
}


def written(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
