"""Constants of decoding, fitted to measured rows of serving, and how far off they are.

    python benchmarks/decoding.py ROWS.csv [--write] [--page]

ROWS.csv is a table of serving as `hetopt predict` reads it. `--write` writes the
constants that fit into `hetopt.costs.constants`, `--page` results/decoding.md.
"""

import argparse
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import _pages
import numpy as np
from _measuring import publish

from hetopt.costs import decoding
from hetopt.costs.runs.serving import Served, described, parts
from hetopt.formats.runs import read_serving
from hetopt.schema.calibration import OF_80_PERCENT

YAML = Path(decoding.__file__).parent / "constants" / "decoding.yaml"
NAMES = [name for name, one in decoding.entries().items() if "prior" in one]
#: Rows whose error is beyond this say little (engines that were not tuned, or queued).
FAR = 0.15
#: Rows of one engine say little more than one: the weight of n is n to this power.
ALIKE = -0.35
TRUST = 0.25  # of all rows beside the priors
HEAD, TAIL = "# Decoding\n", ""
Key = Callable[[int], Hashable]


class Study:
    """Rows in the model's terms, each once, and fits without some of them."""

    def __init__(self, path: Path) -> None:
        once: dict[Hashable, Served] = {}
        for row in read_serving(path):
            of = row.model_path, row.system, row.backend, row.isl, row.osl
            once.setdefault((*of, row.silicon_tpot_ms), row)
        self.rows = [x for x in once.values() if x.silicon_tpot_ms]
        found = [parts(row) for row in self.rows]
        self.terms = np.array([[x.get(name, 0.0) for name in NAMES] for x in found])
        self.measured = np.log([row.silicon_tpot_ms / 1000 for row in self.rows])
        self.shapes = [described(row)[0] for row in self.rows]
        sizes: dict[Hashable, int] = defaultdict(int)
        alike = [
            (self.model(i), self.system(i), self.program(i), row.in_precision)
            for i, row in enumerate(self.rows)
        ]
        for one in alike:
            sizes[one] += 1
        weights = np.array([sizes[one] ** ALIKE for one in alike])
        self.weights = weights / weights.mean() / FAR

    def model(self, i: int) -> str:
        """Return the first model of the row's shape: V3 and R1 are one."""
        return self.rows[self.shapes.index(self.shapes[i])].model_path

    def system(self, i: int) -> str:
        return self.rows[i].system

    def program(self, i: int) -> str:
        return self.rows[i].backend

    def pair(self, i: int) -> tuple[str, str]:
        return self.model(i), self.system(i)

    def fitted(self, kept: Sequence[int]) -> np.ndarray:
        """Return constants by Gauss-Newton on logarithms, priors beside, soft L1."""
        priors = [decoding.entries()[name]["prior"] for name in NAMES]
        middle = np.log([x for x, _ in priors])
        inside = np.diag([1 / spread**2 for _, spread in priors])
        terms, measured, weights = (
            x[kept] for x in (self.terms, self.measured, self.weights)
        )
        x = middle.copy()
        for _ in range(60):
            each = terms * np.exp(x)
            whole = each.sum(axis=1)
            slopes = each / whole[:, None]
            off = np.log(whole) - measured
            w = TRUST * weights**2 / np.sqrt(1 + (weights * off) ** 2)
            step = np.linalg.solve(
                (slopes.T * w) @ slopes + inside,
                -(slopes.T * w) @ off - inside @ (x - middle),
            )
            x += np.clip(step, -1, 1)
        return np.exp(x)

    def without(self, key: Key) -> np.ndarray:
        """Return log errors of rows, each by constants of rows of another key."""
        groups = defaultdict(list)
        for i in range(len(self.rows)):
            groups[key(i)].append(i)
        off = np.zeros(len(self.rows))
        for out in groups.values():
            kept = sorted({*range(len(self.rows))} - {*out})
            off[out] = np.log(self.terms[out] @ self.fitted(kept)) - self.measured[out]
        return off

    @cached_property
    def out(self) -> dict[str, np.ndarray]:
        """Return log errors by what was left out."""
        keys: dict[str, Key] = {
            "model": self.model,
            "card": self.system,
            "pair of model and card": self.pair,
            "pair and program": lambda i: (*self.pair(i), self.program(i)),
        }
        every = np.arange(len(self.rows))
        inside = np.log(self.terms @ self.fitted(every)) - self.measured
        return {"nothing": inside} | {x: self.without(key) for x, key in keys.items()}

    @cached_property
    def noise(self) -> dict[str, float]:
        """Return the deviations that cover 80% of rows of models left out, by kind."""
        off, sparse = np.abs(self.out["model"]), self.sparse
        kinds = {"noise.dense": ~sparse, "noise.experts": sparse}
        return {x: float(np.quantile(off[y], 0.8)) / OF_80_PERCENT
                for x, y in kinds.items()}  # fmt: skip

    @cached_property
    def sparse(self) -> np.ndarray:
        return np.array([shape.sparse > 0 for shape in self.shapes])

    def errors(self, off: np.ndarray, some: np.ndarray) -> dict[str, Any]:
        """Return what a line of a table says of some rows."""
        noise = (self.noise[f"noise.{x}"] for x in ("experts", "dense"))
        wide = np.where(self.sparse, *noise)
        size = np.abs(np.expm1(off[some]))
        inside = np.abs(off[some]) <= OF_80_PERCENT * wide[some]
        return {
            "rows": int(some.sum()),
            "median": f"{np.median(size):.1%}",
            "mean": f"{size.mean():.1%}",
            "median bias": f"{np.median(np.expm1(off[some])):+.1%}",
            "within 80% interval": f"{inside.mean():.0%}",
        }


def by(study: Study, out: str, key: Key) -> Iterator[dict[str, Any]]:
    """Yield a line for each value of a key."""
    found = (key(i) for i in range(len(study.rows)))
    keys = [" on ".join(x) if isinstance(x, tuple) else str(x) for x in found]
    for name in sorted(set(keys)):
        some = np.array([one == name for one in keys])
        yield {"rows of": name, **study.errors(study.out[out], some)}


def kind(study: Study, i: int) -> str:
    """Return what of a row the error may depend on."""
    row = study.rows[i]
    sort = "mixture" if study.sparse[i] else "dense"
    long = row.osl / row.isl
    return f"{sort}, answers {'>= 4 x' if long >= 4 else '< 4 x'} the prompt"


def page(study: Study) -> str:
    """Return the page: what was left out, then rows by model, card and program."""
    every = np.ones(len(study.rows), dtype=bool)
    cuts = {"all": every, "dense": ~study.sparse, "mixtures": study.sparse}
    lines = [
        {"left out": out, "of": name, **study.errors(off, some)}
        for out, off in study.out.items()
        for name, some in cuts.items()
    ]
    fitted = study.fitted(np.arange(len(study.rows)))
    constants = [
        {"constant": x, "value": f"{y:.3g}", "is": decoding.entries()[x]["why"]}
        for x, y in zip(NAMES, fitted, strict=True)
    ]
    sections = {
        "Errors": lines,
        "A model left out": by(study, "model", study.model),
        "A pair of model and card left out": by(
            study, "pair of model and card", study.pair
        ),
        "A card left out": by(study, "card", study.system),
        "By program, a model left out": by(
            study, "model", lambda i: f"{study.program(i)} {study.rows[i].in_precision}"
        ),
        "By length, a model left out": by(study, "model", lambda i: kind(study, i)),
        "Constants": constants,
    }
    words = [HEAD]
    for title, rows in sections.items():
        words += [f"## {title}\n", *_pages.table(list(rows)), ""]
    return "\n".join([*words, TAIL])


def write(study: Study) -> None:
    """Write values and noise into the file of constants."""
    fitted = dict(zip(NAMES, study.fitted(np.arange(len(study.rows))), strict=True))
    text = YAML.read_text(encoding="utf-8")
    for name, value in (fitted | study.noise).items():
        line = re.compile(rf"^({re.escape(name)}: {{value: )[0-9.]+", re.MULTILINE)
        text = line.sub(rf"\g<1>{value:.4g}", text)
    YAML.write_text(text, encoding="utf-8")


def main() -> None:
    """Fit and print; write what is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    study = Study(asked.rows)
    print(text := page(study))
    if asked.write:
        write(study)
    if asked.page:
        publish("decoding.md", text)


if __name__ == "__main__":
    main()
