"""Constants of decoding, fitted to a table of serving, and how far off they are.

`python benchmarks/decoding.py ROWS.csv`; `--write` writes the constants into
`hetopt.costs.constants`, `--page` results/decoding.md.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import _pages
import numpy as np
from _measuring import publish

from hetopt.costs import decoding
from hetopt.costs.runs.serving import described
from hetopt.formats.runs import read
from hetopt.schema.calibration import OF_80_PERCENT
from hetopt.text.parsing import read_tree

YAML = Path(decoding.__file__).parent / "constants" / "decoding.yaml"
PRIORS = {x: y["prior"] for x, y in read_tree(YAML).items() if "prior" in y}
NAMES = [*PRIORS]
#: Rows further off say little; n rows of one engine weigh n to a power; all of TRUST.
FAR, ALIKE, TRUST = 0.15, -0.35, 0.25
LEFT_OUT = ("model", "card", "program", "pair of model and card")
HEAD = """# Decoding

Errors are |predicted / measured - 1|.
[The formula's page](../../hetopt/costs/README.md#decoding) says where the rows are
from, and where it is weak. Each row counts once; DeepSeek-R1 and
V3 are one model. *Left out* means predicted by constants of the other rows; intervals
are made of the errors of other models, which were left out themselves.
"""


class Study:
    """Rows in the model's terms, each once, and fits without some of them."""

    def __init__(self, path: Path) -> None:
        key = attrgetter("model_path", "system", "backend", "isl", "silicon_tpot_ms")
        rows = [*{key(x): x for x in read(path)}.values()]
        shapes, found = zip(*map(described, rows), strict=True)
        self.terms = np.array([[x.get(name, 0.0) for name in NAMES] for x in found])
        self.measured = np.log([row.silicon_tpot_ms / 1000 for row in rows])
        first = {shape: x.model_path for shape, x in zip(shapes, rows, strict=True)}
        self.sparse = np.array([shape.sparse > 0 for shape in shapes])
        table = [
            (
                *(own, x.system, x.backend, f"{own} on {x.system}"),
                f"{x.backend}, {x.in_precision}",
            )
            for own, x in zip((first[shape] for shape in shapes), rows, strict=True)
        ]
        columns = map(np.array, zip(*table, strict=True))
        self.labels = dict(zip((*LEFT_OUT, "engine"), columns, strict=True))
        count = Counter(x[3:] for x in table)
        weights = np.array([count[x[3:]] ** ALIKE for x in table])
        self.weights = weights / weights.mean() / FAR
        self.fitted = self.fit(self.sparse >= 0)
        self.out = {"nothing": np.log(self.terms @ self.fitted) - self.measured}
        self.out |= {name: self.without(self.labels[name]) for name in LEFT_OUT}
        self.wide = np.zeros(len(rows))
        for model in set(self.labels["model"]):
            mine = self.labels["model"] == model
            alike = ~mine & (self.sparse == self.sparse[mine][0])
            self.wide[mine] = OF_80_PERCENT * self.noise(alike)

    def fit(self, kept: np.ndarray) -> np.ndarray:
        """Return constants by Gauss-Newton on logarithms, priors beside, soft L1."""
        middle, spread = np.array([*PRIORS.values()]).T
        x, inside = np.log(middle), np.diag(spread**-2)
        for _ in range(60):
            each = self.terms[kept] * np.exp(x)
            off = np.log(each.sum(axis=1)) - self.measured[kept]
            slopes = each / each.sum(axis=1, keepdims=True)
            w = self.weights[kept]
            w = TRUST * w**2 / np.sqrt(1 + (w * off) ** 2)
            pull = (slopes.T * w) @ off + inside @ (x - np.log(middle))
            x -= np.clip(np.linalg.solve((slopes.T * w) @ slopes + inside, pull), -1, 1)
        return np.exp(x)

    def without(self, labels: np.ndarray) -> np.ndarray:
        """Return logarithms of errors, rows of each label left out in turn."""
        off = np.zeros(len(labels))
        for one in set(labels):
            away = labels == one
            off[away] = np.log(self.terms[away] @ self.fit(~away)) - self.measured[away]
        return off

    def noise(self, some: np.ndarray) -> float:
        """Return the deviation of rows whose models were left out, by four in five."""
        return float(np.quantile(np.abs(self.out["model"][some]), 0.8)) / OF_80_PERCENT

    def errors(self, out: str, some: np.ndarray) -> dict[str, Any]:
        """Return what a line of a table says of some rows."""
        off = np.expm1(found := self.out[out][some])
        return {
            "rows": int(some.sum()),
            "median": f"{np.median(np.abs(off)):.1%}",
            "mean": f"{np.abs(off).mean():.1%}",
            "median bias": f"{np.median(off):+.1%}",
            "within 80% interval": f"{(np.abs(found) <= self.wide[some]).mean():.0%}",
        }

    def tables(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Yield titles and tables: errors of all rows, then by label."""
        kinds = {"all": self.sparse >= 0, "dense": ~self.sparse, "mixture": self.sparse}
        rows = [
            {"left out": x, "of": y, **self.errors(x, some)}
            for x in self.out
            for y, some in kinds.items()
        ]
        yield "Errors by what is left out of the fit", rows
        for name, labels in self.labels.items():
            out, each = name if name in self.out else "model", sorted(set(labels))
            rows = [{name: x, **self.errors(out, labels == x)} for x in each]
            yield f"By {name}, a {out} left out", rows


def main() -> None:
    """Fit and print; write what is asked for."""
    study, text = Study(Path(sys.argv[1])), HEAD
    for title, rows in study.tables():
        text += "\n".join([f"\n## {title}\n", *_pages.table(rows), ""])
    print(text)
    if "--write" in sys.argv:
        found = dict(zip(NAMES, study.fitted, strict=True))
        found["noise.dense"] = study.noise(~study.sparse)
        found["noise.experts"] = study.noise(study.sparse)
        yaml = YAML.read_text(encoding="utf-8")
        for name, value in found.items():
            line = re.compile(rf"^({re.escape(name)}: {{value: )[0-9.]+", re.MULTILINE)
            yaml = line.sub(rf"\g<1>{value:.4g}", yaml)
        YAML.write_text(yaml, encoding="utf-8")
    if "--page" in sys.argv:
        publish("decoding.md", text)


if __name__ == "__main__":
    main()
