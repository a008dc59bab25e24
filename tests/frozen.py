"""What commands answer, kept: a change that should change nothing is held to it.

    python tests/frozen.py [--write] [--only WORD ...]

`tests/frozen/commands.txt` is a script of commands in groups, whose limits end by
themselves: work, proofs, planners by name, fixed seeds. Each runs in this process with
`--json`; what it answers and the files that it writes are kept in
`tests/frozen/GROUP.json`, a line a value, without times, versions and places. Without
`--write` each value that differs is printed. `--only` takes the commands that contain a
word; the others run where they make files for them. All of it takes 90 CPU seconds.
"""

import argparse
import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "frozen"
#: What is no longer as JSON is one line; longer records and lists have a line a part.
SHORT = 300
#: Longer texts, and lists of more parts, are kept as a digest.
LONGEST, ROWS = 400, 12
#: So are these records, whose parts tell little.
DIGESTED = ("certificate", "instance", "leases", "result", "stages")
#: What differs from run to run and from machine to machine.
PASSING = re.compile(
    r"seconds|.*_seconds|planning_s|trace|.*version|date|machine|decision_.*_s|"
    r".*integral_s|shifted_mean_s"
)
#: Lines of files that say when and by what they were made.
STAMP = re.compile(r"\d{4}-\d\d-\d\d(T[\d:.+Z-]+)?|hetopt \d+\.\d+[\w.+-]*")
#: Files of which the name is enough: they are drawn, or tell times.
DRAWN = (".html", ".svg", ".png", ".pdf")

Answer = dict[str, Any]


def commands() -> Iterator[tuple[str, str]]:
    """Yield the group and the line of each command, in their order."""
    group = ""
    text = (FOLDER / "commands.txt").read_text("utf-8").replace("\\\n", "")
    for line in map(str.strip, text.splitlines()):
        if line.startswith("## "):
            group = line[3:]
        elif line and not line.startswith("#"):
            yield group, line


def digest(text: str) -> str:
    """Return a text's digest, with its length."""
    short = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{short}, {len(text)}"


def plain(text: str, place: Path) -> str:
    """Return a text without places and stamps."""
    text = text.replace(str(place), "PLACE").replace(str(ROOT), "ROOT")
    return STAMP.sub("STAMP", text)


def bare(value: Any, place: Path) -> Any:
    """Return a document without what is passing, its floats to nine digits."""
    if isinstance(value, dict):
        kept_keys = (key for key in value if not PASSING.fullmatch(key))
        return {key: bare(value[key], place) for key in kept_keys}
    if isinstance(value, list):
        return [bare(part, place) for part in value]
    if isinstance(value, str):
        return plain(value, place)
    return float(f"{value:.9g}") if isinstance(value, float) else value


def lines(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what stands where in a bare document; what is short, as it is."""
    text = json.dumps(value, ensure_ascii=False)
    most = LONGEST if isinstance(value, str) else SHORT
    if path and len(text) <= most:
        yield path, value
    elif path.rpartition("/")[2] in DIGESTED:
        yield path, digest(text)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from lines(part, f"{path}/{key}")
    elif isinstance(value, list) and len(value) <= ROWS:
        for k, part in enumerate(value):
            yield from lines(part, f"{path}/{k}")
    else:
        yield path, digest(text)


def kept(path: Path, place: Path) -> str:
    """Return what is kept of a file: a digest of its values, or of its text."""
    if path.suffix in DRAWN:
        return "is written"
    text = path.read_text("utf-8")
    if path.suffix == ".json":
        with contextlib.suppress(json.JSONDecodeError):
            text = json.dumps(bare(json.loads(text), place), ensure_ascii=False)
    return digest(plain(text, place))


def files(place: Path) -> dict[Path, tuple[int, int]]:
    """Return the files of a folder, with what changes when they are written."""
    found = (path for path in sorted(place.rglob("*")) if path.is_file())
    return {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in found}


def answer(line: str, place: Path) -> Answer:
    """Run a command in the current folder, and return what is kept of its answer."""
    from hetopt import cli

    before = files(place)
    words = shlex.split(line)[1:]
    told = CliRunner().invoke(cli.app, [*words, *["--json"] * ("--json" not in words)])
    found: Answer = {"exit": told.exit_code}
    if told.exception and not isinstance(told.exception, SystemExit):
        found["raised"] = repr(told.exception)
    try:
        document = json.loads(told.stdout)
    except json.JSONDecodeError:
        document = {"text": told.stdout}
    if isinstance(document, list):
        document = {
            str(row.get("name", k)): digest(json.dumps(bare(row, place)))
            for k, row in enumerate(document)
        }
    found |= lines(bare(document, place))
    for path, state in files(place).items():
        if before.get(path) != state:
            found[f"file {path.relative_to(place)}"] = kept(path, place)
    return found


def answers(words: list[str]) -> Iterator[tuple[str, str, Answer]]:
    """Run the script in a folder of its own; yield group, command and answer."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        shutil.copytree(ROOT / "instances/examples", place / "instances/examples")
        shutil.copy(FOLDER / "two-gpus.yaml", place)
        os.chdir(place)
        try:
            for group, line in commands():
                if not line.startswith("hetopt "):
                    subprocess.run(["bash", "-c", line], check=True)
                elif not words or any(word in line for word in words):
                    yield group, line, answer(line, place)
                elif "-out " in line:
                    answer(line, place)
        finally:
            os.chdir(here)


def kept_of(group: str) -> dict[str, Answer]:
    """Return the answers of a group that are kept."""
    path = FOLDER / f"{group}.json"
    text = path.read_text("utf-8") if path.is_file() else "{}"
    return json.loads(text)


def differences(words: list[str]) -> Iterator[str]:
    """Yield a line for each value that is not as it is kept."""
    for group, line, now in answers(words):
        was = kept_of(group).get(line, {})
        changed = [x for x in {**was, **now} if was.get(x) != now.get(x)]
        if changed:
            yield f"$ {line}"
        for key in changed:
            yield f"    {key}: {was.get(key, '(none)')!r} -> {now.get(key, '(none)')!r}"


def table(rows: dict[str, Answer]) -> str:
    """Return the answers of a group as JSON with a line a value."""

    def record(parts: Iterable[tuple[str, str]]) -> str:
        inner = ",\n".join(f"{json.dumps(key)}: {text}" for key, text in parts)
        return f"{{\n{inner}\n}}"

    texts = (
        (line, record((k, json.dumps(v, ensure_ascii=False)) for k, v in now.items()))
        for line, now in rows.items()
    )
    return record(texts) + "\n"


def write(words: list[str]) -> None:
    """Keep the answers of today."""
    found: dict[str, dict[str, Answer]] = {}
    now = {line: today for _, line, today in answers(words)}
    for group, line in commands():
        row = now.get(line) or kept_of(group).get(line)
        if row:  # and not a line that makes a file
            found.setdefault(group, {})[line] = row
    for group, rows in found.items():
        (FOLDER / f"{group}.json").write_text(table(rows), "utf-8")


def main() -> int:
    """Compare, or write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="keep today's answers")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD")
    asked = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if asked.write:
        write(asked.only)
        return 0
    code = 0
    for line in differences(asked.only):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
