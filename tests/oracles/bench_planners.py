"""Planners that misbehave, for the children of `hetopt bench` under test.

A child gets them by `sitecustomize`, which Python runs first: the folder that this
module writes is put on the child's path, and beside the planners of hetopt.
"""

import os
from pathlib import Path

PLANNERS = {
    "crashes": "import os\n    os.abort()",
    "raises": "raise RuntimeError('the reason that it gave')",
    "hangs": "import time\n    time.sleep(600)",
    "leaves": "import os\n    os._exit(0)",
    "hoards": (
        "import time\n    kept = []\n    while True:\n"
        "        kept.append(bytearray(b'x' * 2**24))\n        time.sleep(0.01)"
    ),
    "forks": (
        "import subprocess, sys, time\n"
        "    subprocess.Popen([sys.executable, '-c', "
        "'import time; time.sleep(600)'], start_new_session=True)\n"
        "    time.sleep(600)"
    ),
    "dawdles": (
        "import time\n    from hetopt.planners import megatron\n    time.sleep(0.4)\n"
        "    return megatron.plan(data, seed=seed, deadline=deadline)"
    ),
}


def install(folder: Path) -> dict[str, str]:
    """Write the planners to a folder; the environment in which children have them."""
    planners = folder / "planners"
    planners.mkdir()
    for name, body in PLANNERS.items():
        text = f'"""A planner that {name}."""\n\nproblem = "training_plan"\n\n\n'
        text += f"def plan(data, *, seed, deadline):\n    {body}\n"
        (planners / f"{name}.py").write_text(text)
    (folder / "sitecustomize.py").write_text(
        f"import hetopt.planners\nhetopt.planners.__path__.append({str(planners)!r})\n"
    )
    return {**os.environ, "PYTHONPATH": str(folder)}
