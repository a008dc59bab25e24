"""The command lists what an installation of hetopt brings along, with licences.

    python .github/licences.py              # a Markdown table
    python .github/licences.py --json       # a bill of materials (CycloneDX 1.5)

It reads the metadata of the packages that are installed beside hetopt, from its
dependencies on; no network. Our own wheel has nothing of others in it: its C is ours.
Wheels of solvers hold native libraries, of which their metadata say nothing (`NATIVE`).
"""

import argparse
import json
import re
from importlib.metadata import Distribution, distribution
from typing import Any

from packaging.requirements import Requirement

ROOT = "hetopt"
#: Licence families that a text or a classifier names, the more special ones first.
_FAMILIES = (
    ("MPL-2.0", r"MPL|Mozilla"),
    ("EPL-2.0", r"\bEPL|Eclipse"),
    ("LGPL", r"LGPL|Lesser General"),
    ("GPL", r"\bGPL|General Public"),
    ("Apache-2.0", r"Apache"),
    ("BSD-3-Clause", r"BSD"),
    ("PSF-2.0", r"PSF|Python Software Foundation"),
    ("MIT", r"MIT"),
)


#: Solvers that lie in a package as native code, what they are linked with, and the
#: licences; seen in the wheels of PyPI (PySCIPOpt 6.3, OR-Tools 9.15, PuLP 3.3).
NATIVE = {
    "pulp": "CBC, EPL-2.0",
    "pyscipopt": "SCIP, SoPlex, METIS and nauty, Apache-2.0; Ipopt, EPL-2.0; MUMPS, "
    "CeCILL-C; runtime libraries of GCC, GPL-3.0 with its exception and LGPL-2.1",
    "ortools": "CP-SAT and SCIP, Apache-2.0; HiGHS, MIT; CBC and CLP, EPL-2.0",
}


def closure(name: str) -> list[Distribution]:
    """Return the package and all that it needs on this machine, by name."""
    found: dict[str, Distribution] = {}
    open_names = [name]
    while open_names:
        key = canonical(open_names.pop())
        if key in found:
            continue
        found[key] = distribution(key)
        needed = map(Requirement, found[key].requires or [])
        open_names += [one.name for one in needed if _wanted(one)]
    return [found[key] for key in sorted(found)]


def _wanted(needed: Requirement) -> bool:
    """Whether this platform and Python want it, without any extra."""
    return needed.marker is None or needed.marker.evaluate({"extra": ""})


def canonical(name: str) -> str:
    """Return a name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(package: Distribution) -> str:
    """Return the licence that a package declares; "not declared" where it does not."""
    told = package.metadata
    if expression := told.get("License-Expression"):
        return str(expression)
    classifiers = [c for c in told.get_all("Classifier", []) if c.startswith("License")]
    first_line = (told.get("License") or "").strip().partition("\n")[0]
    for text in (*classifiers, first_line):
        for family, words in _FAMILIES:
            if re.search(words, text):
                return family
    return first_line or "not declared"


def table(packages: list[Distribution]) -> str:
    """Return a Markdown table, a package a row."""
    rows = ["| package | version | licence | native code in it |", "|---|---|---|---|"]
    for one in packages:
        name = one.metadata["Name"]
        native = NATIVE.get(canonical(name), "")
        rows.append(f"| {name} | {one.version} | {licence(one)} | {native} |")
    return "\n".join(rows)


def bill(packages: list[Distribution]) -> dict[str, Any]:
    """Return a bill of materials in the form of CycloneDX."""
    parts = [_part(one) for one in packages]
    first = next(one for one in parts if one["name"] == ROOT)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": first | {"type": "application"}},
        "components": [one for one in parts if one is not first],
    }


def _part(package: Distribution) -> dict[str, Any]:
    name = canonical(package.metadata["Name"])
    native = {"description": f"holds {NATIVE[name]}"} if name in NATIVE else {}
    return native | {
        "type": "library",
        "name": name,
        "version": package.version,
        "purl": f"pkg:pypi/{name}@{package.version}",
        "licenses": [{"license": {"name": licence(package)}}],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What an installation brings along.")
    parser.add_argument("--json", action="store_true", help="as CycloneDX")
    packages = closure(ROOT)
    if parser.parse_args().json:
        print(json.dumps(bill(packages), indent=1))
    else:
        print(table(packages))


if __name__ == "__main__":
    main()
