"""Bytes by source in three recoveries over throttled paths, beside what was predicted.

    python benchmarks/nearby.py [--page]

The executor saves on the disks of two hosts and on shared storage, and goes on under
other plans: from where states are nearest, and from storage alone. Disks and storage
are file systems of their own, whose reads the kernel holds to a rate and counts (cgroup
v1's blkio); hosts are this machine, whose loopback is held to a rate, too (tc). Root,
PyTorch, util-linux, e2fsprogs and iproute2 are needed; all of it ends with the script.
Appends rows to results/nearby.jsonl and writes results/nearby.md: about two minutes.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from _measuring import keep, kept, publish
from _pages import grid

from hetopt.plans import TrainingPlan
from hetopt.runtime import supervisor
from hetopt.runtime.jobs import Optimiser, Settings, job
from hetopt.schema import Instance
from hetopt.text.complaints import validated

LINES, PAGE = "nearby.jsonl", "nearby.md"
STORAGE, DISKS = "storage", ("a", "b", "c")
#: Bytes per second of each host's disk, of shared storage, and between hosts.
DISK, SHARED, NETWORK = 20_000_000, 8_000_000, 20_000_000
MIB = 192  # of each file system
CGROUP = Path("/sys/fs/cgroup/blkio")
COUNTS = "blkio.throttle.io_service_bytes_recursive"
STEPS = 2
_NO_TABLES = shutil.ignore_patterns("lost+found")
Row = dict[str, Any]
MODEL = {
    **{"name": "m", "layers": 4, "hidden": 192, "heads": 4, "kv_heads": 4},
    **{"vocabulary": 1024, "gated": True, "intermediate": 512},
}
NOTES = """
**How to read it.** MB of weights and moments that ranks read from their own host's
disk, got from another host's rank, and read from shared storage, beside what `recover`
predicted of the plan that was carried out; *kernel* is what the file systems' devices
were read, which has no way to know of either: whole pages, their own tables, and what
the kernel reads ahead. Hosts are one machine here, with one memory: what a second
host reads of the storage is there already, and is not read again. Over a network it
would be, and *storage alone* would take twice as long for two hosts. Seconds are those
of moving, without planning. *Storage alone* (Varuna's way) is the same recovery where
no disk has anything.

Disks were held to {disk} MB/s each, storage to {shared} MB/s, the network to {network}
MB/s. States are {size} MB. Of two hosts each keeps a whole replica on its disk; then
host a leaves.
"""


def stage(first: int, last: int, gpus: str, samples: int) -> Row:
    """A stage of one replica."""
    replica = {"gpus": gpus.split(), "samples": samples}
    return {"layers": [first, last], "replicas": [replica]}


def pipeline(count: int, size: int, *stages: Row) -> Row:
    """A pipeline of so many micro-batches of a size."""
    return {"micro_batches": count, "micro_batch_size": size, "stages": [*stages]}


BEFORE = [
    pipeline(2, 2, stage(0, 4, "a:0 a:1", 2)),
    pipeline(4, 1, stage(0, 1, "b:0", 1), stage(1, 4, "b:1", 1)),
]
ON_B = [pipeline(8, 1, stage(0, 2, "b:0", 1), stage(2, 4, "b:1", 1))]
ON_C = [
    pipeline(2, 2, stage(0, 4, "b:0 b:1", 2)),
    pipeline(2, 2, stage(0, 4, "c:0 c:1", 2)),
]
#: Of each recovery its plan, and the files that are lost on b's disk before.
RECOVERIES: Mapping[str, tuple[list[Row], str | None]] = {
    "to other cuts, on a host that kept its disk": (ON_B, None),
    "to a new host beside one that kept its disk": (ON_C, None),
    "the same, and half of the layers lost on that disk": (ON_C, "[12].*"),
}


def instance() -> Instance:
    """A small model on three hosts of two GPUs."""
    tree = {
        "name": "near",
        "model": MODEL,
        "cluster": {
            "gpus": {"card": {"peak_tflops": 1, "memory_gib": 8}},
            "nodes": [
                {"name": name, "gpu": "card", "count": 2, "intra_gbytes_per_s": 10}
                for name in DISKS
            ],
            "inter": {"gbytes_per_s": 1},
        },
        "workload": {
            **{"sequence_length": 8, "global_batch": 8, "micro_batch_sizes": [1, 2]},
        },
    }
    return validated(Instance, tree, "instance")


def run(place: Path, pipelines: list[Row], disk: str, steps: int) -> Row | None:
    """Train up to a step by a plan, and save: whence its states came."""
    plan = validated(TrainingPlan, {"pipelines": pipelines}, "plan")
    told = Settings(
        steps=steps,
        every=steps,
        cpu=True,
        checkpoint=str(place / STORAGE / "states"),
        local=str(place / "{host}" / disk),
        optimiser=Optimiser(decay="none"),
    )
    rows: list[Row] = []
    supervisor.run(job(instance(), plan, told), rows.append)
    return next((row for row in rows if "restored" in row), None)


class Paths:
    """File systems whose reads are held to a rate, in namespaces of this process."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._group = CGROUP / f"hetopt-nearby-{os.getpid()}"
        self._home = CGROUP / _own_group().lstrip("/")
        self._devices: dict[str, str] = {}
        self._kept = place / "kept"

    def __enter__(self) -> "Paths":
        """Make file systems and rates, and put this process under them."""
        self._group.mkdir()
        for name in (*DISKS, STORAGE):
            image = self.place / f"{name}.img"
            with image.open("wb") as file:
                file.truncate(MIB * 2**20)
            called("mkfs.ext4", "-q", "-F", str(image))
            device = called("losetup", "--find", "--show", str(image))
            self._devices[name] = device
            (self.place / name).mkdir()
            rate = SHARED if name == STORAGE else DISK
            limit = f"{self._number(name)} {rate}"
            (self._group / "blkio.throttle.read_bps_device").write_text(limit)
            called("mount", device, str(self.place / name))
        (self._group / "cgroup.procs").write_text(str(os.getpid()))
        called("ip", "link", "set", "lo", "up")
        rate = f"rate {8 * NETWORK} burst 256kb latency 400ms"
        called(*("tc", "qdisc", "add", "dev", "lo", "root", "tbf"), *rate.split())
        return self

    def __exit__(self, *how: object) -> None:
        """Give back devices and the group; namespaces end with the process."""
        for name, device in self._devices.items():
            subprocess.run(["umount", str(self.place / name)], check=False)
            called("losetup", "--detach", device)
        (self._home / "cgroup.procs").write_text(str(os.getpid()))
        self._group.rmdir()

    def save(self) -> None:
        """Keep what file systems have, to go on from it again."""
        for name in self._devices:
            shutil.copytree(self.place / name, self._kept / name, ignore=_NO_TABLES)

    def restore(self, lost: str | None) -> None:
        """Have file systems as they were, without what b loses, and no page read."""
        for name in self._devices:
            shutil.rmtree(self.place / name / "states", ignore_errors=True)
            kept = self._kept / name
            shutil.copytree(kept, self.place / name, dirs_exist_ok=True)
        for file in (self.place / "b" / "states").glob(f"step-*/b/{lost}"):
            file.unlink()
        for name, device in self._devices.items():
            called("umount", str(self.place / name))
            called("mount", device, str(self.place / name))

    def counts(self) -> dict[str, int]:
        """Return the bytes that the kernel has read from each file system's device."""
        lines = (self._group / COUNTS).read_text().splitlines()
        told = [line.split() for line in lines if " Read " in line]
        found = {number: int(size) for number, _, size in told}
        return {name: found.get(self._number(name), 0) for name in self._devices}

    def _number(self, name: str) -> str:
        found = os.stat(self._devices[name]).st_rdev
        return f"{os.major(found)}:{os.minor(found)}"


def called(*words: str) -> str:
    """Return what a command prints; it has to succeed."""
    return subprocess.run(
        words, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def _own_group() -> str:
    """Return where this process is in the hierarchy of block devices."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return next(line.split(":", 2)[2] for line in lines if ":blkio:" in line)


def recoveries(paths: Paths) -> Iterator[Row]:
    """Save once, and recover three times, from what is near and from storage."""
    run(paths.place, BEFORE, "states", STEPS)
    paths.save()
    for name, (plan, lost) in RECOVERIES.items():
        row: Row = {"recovery": name}
        for way, disk in (("near", "states"), ("all", "none")):
            paths.restore(lost)
            before = paths.counts()
            found = run(paths.place, plan, disk, STEPS + 1)
            assert found is not None
            read = {name: n - before[name] for name, n in paths.counts().items()}
            row[way] = {
                "bytes": found["bytes"],
                "predicted": found["predicted_bytes"],
                "seconds": found["measured_s"],
                "kernel_disks": sum(read[name] for name in DISKS),
                "kernel_storage": read[STORAGE],
            }
        yield row


def page(rows: list[Row]) -> Iterator[str]:
    """The Markdown page."""
    yield "# States from the nearest place"
    yield ""
    yield (
        "Made by `python benchmarks/nearby.py`: a small model under `hetopt run "
        "--local`, on hosts of this machine behind throttled paths."
    )
    yield ""
    heads = ["recovery", "from", "own disks, MB", "other hosts", "storage"]
    heads += ["predicted", "kernel: disks", "kernel: storage", "seconds"]
    yield from grid(heads, _cells(rows))
    once = rows[0]["all"]["bytes"]["storage"]
    yield NOTES.format(
        **{"disk": mega(DISK), "shared": mega(SHARED), "network": mega(NETWORK)},
        size=mega(once),
    ).rstrip()


def _cells(rows: list[Row]) -> Iterator[list[str]]:
    for row in rows:
        for way, where in (("near", "the nearest place"), ("all", "storage alone")):
            one = row[way]
            predicted = [mega(one["predicted"][kind]) for kind in one["bytes"]]
            yield [
                *(row["recovery"], where),
                *(mega(size) for size in one["bytes"].values()),
                " + ".join(predicted),
                *(mega(one["kernel_disks"]), mega(one["kernel_storage"])),
                f"{one['seconds']:.1f}",
            ]


def mega(size: int) -> str:
    """Return bytes in MB."""
    return f"{size / 10**6:.3g}"


def main(told: list[str] | None = None) -> None:
    """Run within namespaces of its own; keep, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(told)
    if not asked.page and not asked.inside:
        words = ["unshare", "--net", "--mount", sys.executable, __file__, "--inside"]
        os.execvp(words[0], words)
    if asked.inside:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        with tempfile.TemporaryDirectory() as folder, Paths(Path(folder)) as paths:
            for row in recoveries(paths):
                keep(LINES, row, "torch")
    publish(PAGE, "\n".join(page(kept(LINES)[-len(RECOVERIES) :])) + "\n", LINES)


if __name__ == "__main__":
    main()
