"""How heavy the house is, by part, and the brake on it.

    python tests/house.py            # lines of each part, at most, and wanted
    python tests/house.py --weigh    # lowers the numbers of `tests/weight.toml`

`tests/weight.toml` gives each part its folders and the most lines that it may have; a
file belongs to the part whose folder is nearest. Lines are those of tracked files of
code, blank ones and comments included. A number is never raised here.
"""

import re
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
WEIGHT = ROOT / "tests" / "weight.toml"
CODE = (".py", ".pyi", ".pyx", ".pxd", ".c", ".h", ".js", ".css", ".html", ".j2", ".sh")
#: How many lines a part may be below its number before this has to follow.
SLACK = 50


class Part(NamedTuple):
    """Part of the house: the most lines that it may have, those wanted, its folders."""

    now: int
    wanted: int
    folders: list[str]


def parts() -> dict[str, Part]:
    """Return the parts by their names."""
    found = tomllib.loads(WEIGHT.read_text("utf-8"))
    return {name: Part(**part) for name, part in found.items()}


@cache
def lines() -> Counter[str]:
    """Return the lines of each part. Raises `CalledProcessError` outside a clone."""
    owners = {folder: name for name, part in parts().items() for folder in part.folders}
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = Counter(dict.fromkeys(parts(), 0))
    for path in map(Path, listed.stdout.split("\0")):
        if path.suffix in CODE and (ROOT / path).is_file():
            nearest = (owners.get(str(x)) for x in (path, *path.parents))
            owner = next(name for name in nearest if name)
            found[owner] += (ROOT / path).read_bytes().count(b"\n")
    return found


def weigh() -> list[str]:
    """Lower the numbers to today's lines; return the parts that are above theirs."""
    text = WEIGHT.read_text("utf-8")
    for name, part in parts().items():
        least = min(part.now, lines()[name])
        text = re.sub(rf"(?m)^({name} = .*\bnow = )\d+", rf"\g<1>{least}", text)
    WEIGHT.write_text(text, "utf-8")
    return [name for name, part in parts().items() if lines()[name] > part.now]


def table() -> str:
    """Return a row for each part, and one for all whose folders are in `hetopt/`."""
    rows = {name: (lines()[name], part[0], part[1]) for name, part in parts().items()}
    ours = [row for name, row in rows.items() if "hetopt" in parts()[name].folders[0]]
    rows["hetopt/"] = tuple(map(sum, zip(*ours, strict=True)))  # type: ignore[assignment]
    texts = [f"{'':<14}{'lines':>9}{'at most':>9}{'wanted':>9}"]
    texts += [f"{a:<14}" + "".join(f"{x:>9,}" for x in row) for a, row in rows.items()]
    return "\n".join(texts) + "\n"


if __name__ == "__main__":
    above = weigh() if sys.argv[1:] == ["--weigh"] else []
    sys.stdout.write(table())
    for name in above:
        sys.stderr.write(f"{name}: above its number: what leaves in its place?\n")
    sys.exit(bool(above))
