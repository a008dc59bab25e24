"""How many processes a launch script starts: by its launcher, by variables, by Slurm.

torchrun, DeepSpeed and srun have flags of their own; ms-swift and LLaMA-Factory read
NPROC_PER_NODE and NNODES; every program sees the GPUs of CUDA_VISIBLE_DEVICES alone; a
batch script of Slurm asks for nodes and GPUs in its `#SBATCH` lines.
"""

import re
from collections.abc import Iterator, Mapping

NAMES = EACH, NODES, ALL = "nproc-per-node", "nnodes", "world-size"
_BATCH = re.compile(r"(?m)^#SBATCH[ \t]+(.{1,400})$")
_OPTION = re.compile(
    r"(?:--(?P<long>[a-z-]{1,40})(?:=|[ \t]+)|-(?P<short>[Nn])[ \t]*)"
    r"(?P<value>[^\s#]{1,80})"
)
_GPUS = re.compile(r"(?:gpu:)?(?:[A-Za-z][\w.-]{0,60}:)?([0-9]{1,3})(?:\(.*\))?")
_VISIBLE = (
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    "ASCEND_RT_VISIBLE_DEVICES",
)
#: Variables that say how many processes there are.
VARIABLES = frozenset(
    {*("SLURM_NNODES", "SLURM_GPUS_ON_NODE", "NPROC_PER_NODE", "NNODES"), *_VISIBLE}
)
_DEVICES = re.compile(r"[0-9]{1,3}(?:,[0-9]{1,3})*")
_ELSEWHERE = {"srun", "mpirun", "mpiexec", "pdsh", "ray", "hostfile"}
_BY_VARIABLES = {"swift", "megatron", "llamafactory-cli"}
_TORCHRUN = {"torchrun", "torch.distributed.launch", "torch.distributed.run"}


def of_slurm(text: str) -> dict[str, str]:
    """Return the variables that Slurm sets by the `#SBATCH` lines of a script."""
    told: dict[str, str] = {}
    for line in _BATCH.findall(text):
        for match in _OPTION.finditer(line):
            name = match["long"] or {"N": "nodes", "n": "ntasks"}[match["short"]]
            told[name] = match["value"]
    found: dict[str, str] = {}
    if _is_number(nodes := told.get("nodes", "")):
        found |= dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), nodes)
    if each := told.get("gpus-per-node"):
        found["SLURM_GPUS_PER_NODE"] = each
    for name in ("gpus-per-node", "gres"):
        if gpus := _GPUS.fullmatch(told.get(name, "")):
            found["SLURM_GPUS_ON_NODE"] = gpus[1]
    if _is_number(tasks := told.get("ntasks-per-node", "")):
        found["SLURM_NTASKS_PER_NODE"] = tasks
        if _is_number(nodes):
            found["SLURM_NTASKS"] = str(int(nodes) * int(tasks))
    if _is_number(tasks := told.get("ntasks", "")):
        found["SLURM_NTASKS"] = tasks
    return found


def started(
    program: str, given: Mapping[str, str], variables: Mapping[str, str]
) -> dict[str, str]:
    """Return how many processes a command starts, by torchrun's names of flags.

    Only what the command does not tell by these names itself is returned.
    """
    words = {word.rpartition("/")[2] for word in program.split()}
    words |= {word for value in given.values() for word in value.split()[1:]}
    words |= {"hostfile"} & given.keys()
    found = {**dict(_told(program, words, given, variables)), **given}
    if EACH not in found:
        found.pop(NODES, None)
    return {name: found[name] for name in (EACH, NODES, ALL) if name in found}


def _told(
    program: str,
    words: set[str],
    given: Mapping[str, str],
    variables: Mapping[str, str],
) -> Iterator[tuple[str, str]]:
    """Yield the numbers of processes, the surer ones last."""
    is_elsewhere = not words.isdisjoint(_ELSEWHERE)
    if _is_number(nodes := variables.get("SLURM_NNODES", "")):
        yield NODES, nodes
    elif not is_elsewhere:
        yield NODES, "1"
    if _is_number(gpus := variables.get("SLURM_GPUS_ON_NODE", "")):
        yield EACH, gpus
    for name in _VISIBLE:
        if _DEVICES.fullmatch(visible := variables.get(name, "")):
            yield EACH, str(visible.count(",") + 1)
    if not words.isdisjoint(_BY_VARIABLES):
        for name, variable in ((EACH, "NPROC_PER_NODE"), (NODES, "NNODES")):
            if variable in variables:
                yield name, variables[variable]
    if not words.isdisjoint(_TORCHRUN):
        return
    for name, flag in ((EACH, "num-gpus"), (NODES, "num-nodes")):
        if "deepspeed" in words and (number := _first(given, flag)):
            yield name, number
    if "deepspeed" in words and (hosts := _first(given, "include")):
        counts = [part.partition(":")[2].split(",") for part in hosts.split("@")]
        if len({len(held) for held in counts}) == 1 and counts[0] != [""]:
            yield NODES, str(len(counts))
            yield EACH, str(len(counts[0]))
    if "srun" in words:
        for name, flag in ((EACH, "ntasks-per-node"), (NODES, "nodes")):
            if number := _first(given, flag):
                yield name, number
    if match := re.search(r"\bmpi(?:run|exec)\b.{0,200}? -np? ([0-9]{1,6})\b", program):
        yield ALL, match[1]


def _first(given: Mapping[str, str], name: str) -> str:
    """Return the value of a flag without the program that may stand behind it."""
    return (given.get(name, "").split() or [""])[0]


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,6}", text) is not None
