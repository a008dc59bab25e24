"""A script: solve models by HiGHS, one after the other, until standard input ends.

MathOpt cannot interrupt HiGHS, and HiGHS fixes its number of threads at the first
solve of a process: so it runs in a process that can be ended. A frame is a kind (one
byte), a length (eight, big-endian) and so many bytes. In come pairs of `Q`, a JSON
object of what is asked, and `M`, a model's protocol buffer; out go, for each pair,
`L`, a line of HiGHS's log, any number of times, and `A`, a JSON object: the answer, or
what went wrong under `failed`.
"""

import json
import os
import queue
import struct
import sys
import threading
from collections.abc import Iterable
from datetime import timedelta
from typing import BinaryIO, TypeAlias, TypedDict, final

# Untyped in some environments, typed in others.
from ortools.math_opt import (  # type: ignore[import-untyped,unused-ignore]
    model_pb2,
)
from ortools.math_opt.python import (  # type: ignore[import-untyped,unused-ignore]
    mathopt,
)

HEAD = struct.Struct(">cQ")


class Asked(TypedDict):
    """A request: limits, and the values of the hint by the variables' numbers."""

    time_s: float | None
    gap: float
    seed: int
    threads: int
    memory_mib: int | None
    solutions: str
    hint: dict[int, int]


@final
class Answered(TypedDict):
    """The answer of HiGHS; values are in the order of the variables."""

    reason: str
    limit: str | None
    detail: str
    bound: float
    objective: float | None
    values: list[float] | None


@final
class Failed(TypedDict):
    """The answer where something went wrong."""

    failed: str
    memory: bool  # whether memory was short


Request: TypeAlias = tuple[Asked, bytes]
# Of MathOpt; its message of a status that is not OK ends in an AttributeError.
FAILURES = (
    AttributeError,
    MemoryError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
)


def read(stream: BinaryIO) -> tuple[bytes, bytes] | None:
    """The next frame; None at the end."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    kind, length = HEAD.unpack(head)
    return kind, stream.read(length)


def write(stream: BinaryIO, kind: bytes, content: bytes) -> None:
    """Send a frame."""
    stream.write(HEAD.pack(kind, len(content)) + content)
    stream.flush()


def limit_memory(mib: int | None) -> None:
    """Allow so much beyond what this process has; no limit for None."""
    if sys.platform == "win32":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = resource.RLIM_INFINITY if hard == resource.RLIM_INFINITY else hard
    if mib is not None:
        with open("/proc/self/statm", encoding="ascii") as pages:
            now = int(pages.read().split()[0]) * resource.getpagesize()
        soft = now + mib * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def parameters(asked: Asked) -> mathopt.SolveParameters:
    """Return what is asked of HiGHS, as MathOpt wants it."""
    wanted = mathopt.SolveParameters(
        relative_gap_tolerance=asked["gap"],
        random_seed=asked["seed"],
        time_limit=None if asked["time_s"] is None else timedelta(0, asked["time_s"]),
    )
    wanted.highs.int_options["threads"] = asked["threads"]
    wanted.highs.string_options["mip_improving_solution_file"] = asked["solutions"]
    return wanted


def solve(asked: Asked, content: bytes, out: BinaryIO) -> Answered:
    """Return the answer, whose values are None without a solution."""
    model = mathopt.Model.from_model_proto(model_pb2.ModelProto.FromString(content))
    variables = list(model.variables())
    hint = {variables[int(i)]: value for i, value in asked["hint"].items()}
    hints = [mathopt.SolutionHint(variable_values=hint)] if hint else []

    def log(lines: Iterable[str]) -> None:
        for line in lines:
            write(out, b"L", line.encode())

    limit_memory(asked["memory_mib"])
    found = mathopt.solve(
        model,
        mathopt.SolverType.HIGHS,
        params=parameters(asked),
        model_params=mathopt.ModelSolveParameters(solution_hints=hints),
        msg_cb=log,
    )
    ended, values, objective = found.termination, None, None
    if found.has_primal_feasible_solution():
        objective, by_variable = found.objective_value(), found.variable_values()
        values = [by_variable[variable] for variable in variables]
    return {
        "reason": ended.reason.name,
        "limit": ended.limit.name if ended.limit else None,
        "detail": ended.detail,
        "bound": ended.objective_bounds.dual_bound,
        "objective": objective,
        "values": values,
    }


def receive(requests: "queue.SimpleQueue[Request]") -> None:
    """Queue what is asked; end the process, whatever it does, with its input."""
    stream = sys.stdin.buffer
    while (asked := read(stream)) and (model := read(stream)):
        requests.put((json.loads(asked[1]), model[1]))
    os._exit(0)


def main() -> None:
    """Serve until the input ends."""
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)  # what HiGHS itself prints is no frame
        requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        threading.Thread(target=receive, args=(requests,), daemon=True).start()
        while True:
            asked, model = requests.get()
            answer: Answered | Failed
            try:
                answer = solve(asked, model, out)
            except FAILURES as error:  # raised on the other side
                why = error.__context__ or error
                answer = {
                    "failed": f"{type(why).__name__}: {why}",
                    "memory": isinstance(why, MemoryError),
                }
            write(out, b"A", json.dumps(answer).encode())


if __name__ == "__main__":
    main()
