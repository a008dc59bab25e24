"""A Slurm of this machine: its own daemons, on nodes whose GPUs are other devices.

`munge` and `slurm-wlm` of a distribution are enough; whoever runs the tests has to be
root, as a slurmd starts tasks as other users.
"""

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "sinfo", "squeue")
#: Of nodes the numbers of GPUs by type, as most clusters call them.
NODES: Mapping[str, Mapping[str, int]] = {
    "nfast1": {"a100": 4},
    "nmixed": {"a100": 1, "l40s": 1},
    "nold1": {"l40s": 2},
    "nold2": {"l40s": 2},
}
_CPUS, _MIB, _PATIENCE_S = 8, 1000, 60.0
_CONF = """\
ClusterName=fake
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/ctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
SlurmctldLogFile={place}/ctld.log
SlurmdLogFile={place}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
GresTypes=gpu
KillWait=5
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def lacking() -> str:
    """Why there can be none here; nothing where there can."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)}: not installed"
    if os.geteuid() != 0:
        return "slurmd wants to be root"
    absent = [file for *_, files in devices() for file in files]
    absent = [file for file in absent if not Path(file).is_char_device()]
    return f"{absent[0]} is no device" if absent else ""


def devices() -> list[tuple[str, str, list[str]]]:
    """Of every node and type what stands for GPUs: Slurm wants devices of any kind."""
    free = count(10)
    return [
        (name, kind, [f"/dev/tty{next(free)}" for _ in range(gpus)])
        for name, types in NODES.items()
        for kind, gpus in types.items()
    ]


@contextmanager
def cluster(place: Path) -> Iterator[dict[str, str]]:
    """Its daemons, in a folder; what tells the commands of Slurm where they are."""
    env = {**os.environ, "SLURM_CONF": str(place / "slurm.conf")}
    _configure(place)
    (place / "munge.key").write_bytes(secrets.token_bytes(128))
    (place / "munge.key").chmod(0o600)
    munge = [
        *("munged", "--foreground", "--force", f"--key-file={place}/munge.key"),
        *(f"--socket={place}/munge.socket", f"--pid-file={place}/munge.pid"),
        *(f"--log-file={place}/munge.log", f"--seed-file={place}/munge.seed"),
    ]
    daemons = [munge, ["slurmctld", "-D"], *(["slurmd", "-D", "-N", n] for n in NODES)]
    with ExitStack() as stack:
        log = stack.enter_context((place / "daemons.log").open("a"))
        for words in daemons:
            daemon = subprocess.Popen(words, env=env, stdout=log, stderr=log)
            stack.callback(daemon.wait)
            stack.callback(daemon.terminate)
        _await("sinfo -h -N -o", "%N %T", [f"{name} idle" for name in NODES], env)
        try:
            yield env
        finally:  # jobs end before the daemons that end them
            subprocess.run(["scancel", "--me"], env=env, check=False)
            _await("squeue -h -o", "%i", [], env)


def _configure(place: Path) -> None:
    host = socket.gethostname()
    text = _CONF.format(
        host=host, place=place, port=free_port(), user=getpass.getuser()
    )
    (place / "state").mkdir()
    for name, types in NODES.items():
        (place / f"spool-{name}").mkdir()
        listed = ",".join(f"gpu:{kind}:{gpus}" for kind, gpus in types.items())
        text += (
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 "
            f"Port={free_port()} CPUs={_CPUS} RealMemory={_MIB} "
            # The more types a node has, the later a job gets it.
            f"Gres={listed} Weight={len(types)} State=UNKNOWN\n"
        )
    gres = "".join(
        f"NodeName={name} Name=gpu Type={kind} File={','.join(files)}\n"
        for name, kind, files in devices()
    )
    (place / "slurm.conf").write_text(text)
    (place / "gres.conf").write_text(gres)


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _await(command: str, form: str, wanted: list[str], env: dict[str, str]) -> None:
    """Wait until a command of Slurm tells what is wanted, in whatever order."""
    deadline, said = time.monotonic() + _PATIENCE_S, ""
    while time.monotonic() < deadline:
        words = [*command.split(), form]
        told = subprocess.run(
            words, env=env, capture_output=True, text=True, check=False
        )
        said = told.stdout + told.stderr
        if told.returncode == 0 and sorted(told.stdout.splitlines()) == sorted(wanted):
            return
        time.sleep(0.2)
    raise AssertionError(f"{command}: found {said}, expected {wanted}")
