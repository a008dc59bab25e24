"""The page of `serve` says times as the command line does."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import hetopt
from hetopt.report import words

NODE = shutil.which("node")
TOOLS = Path(hetopt.__file__).parent / "serving" / "static" / "tools.js"
#: Around every change of unit and of digits, in microseconds.
TIMES_US = (
    *(0, 0.4, 3.45, 36.7, 99.9, 101, 569, 1230, 11_000, 99_960, 176_600, 500_000),
    *(6_234_000, 42_100_000, 752_500_000, 3_599e6, 4_320e6, 84_792.4e6, 172_801e6),
    *(840_172.2e6, 8_553_600e6, 98_928e9),
)
SCRIPT = """
import(process.argv[1]).then((tools) => console.log(
  JSON.stringify(JSON.parse(process.argv[2]).map(tools.time))));
"""


@pytest.mark.skipif(NODE is None, reason="no Node.js to run the page's script")
def test_times_of_the_page_are_those_of_the_command_line(tmp_path: Path) -> None:
    module = tmp_path / "tools.mjs"  # a name that Node takes for a module
    module.write_text(TOOLS.read_text("utf-8"), "utf-8")
    command = [str(NODE), "-e", SCRIPT, module.as_uri(), json.dumps(TIMES_US)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == [words.duration(us / 1e6) for us in TIMES_US]
