"""Corpora of tokens: each kind of file has the same row of numbers."""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from hetopt.errors import InstanceError
from hetopt.runtime.tokens import Numbers, opened

WORDS = 300


def documents(seed: int) -> list[list[int]]:
    random = Random(f"documents/{seed}")
    return [
        [random.randrange(WORDS) for _ in range(random.randint(1, 9))]
        for _ in range(random.randint(1, 12))
    ]


def write_megatron(place: Path, found: list[list[int]], kind: int, dtype: str) -> None:
    """An indexed dataset, field by field as Megatron-LM's writer has them."""
    lengths = [len(one) for one in found]
    row = np.array([x for one in found for x in one], dtype=dtype)
    place.with_suffix(".bin").write_bytes(row.tobytes())
    size = row.itemsize
    starts = [size * sum(lengths[:i]) for i in range(len(lengths))]
    place.with_suffix(".idx").write_bytes(
        b"MMIDIDX\x00\x00"
        + (1).to_bytes(8, "little")
        + bytes([kind])
        + len(lengths).to_bytes(8, "little")
        + (len(lengths) + 1).to_bytes(8, "little")
        + np.array(lengths, dtype="<i4").tobytes()
        + np.array(starts, dtype="<i8").tobytes()
        + np.arange(len(lengths) + 1, dtype="<i8").tobytes()
    )


def assert_reads(corpus: Numbers, found: list[list[int]], seed: int) -> None:
    """All of it, and windows that begin and end anywhere."""
    row = [x for one in found for x in one]
    assert len(corpus) == len(row)
    random = Random(f"windows/{seed}")
    cuts = [(0, len(row))]
    cuts += [tuple(sorted(random.sample(range(len(row) + 1), 2))) for _ in range(9)]
    for first, stop in cuts:
        if first < stop:
            assert corpus[first:stop].tolist() == row[first:stop]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("kind", "dtype"), [(8, "<u2"), (4, "<i4"), (5, "<i8")])
def test_an_indexed_dataset_is_read_by_the_kind_that_it_tells(
    kind: int, dtype: str, seed: int, tmp_path: Path
) -> None:
    place, found = tmp_path / "corpus_text_document", documents(seed)
    write_megatron(place, found, kind, dtype)
    for name in (place, place.with_suffix(".bin"), place.with_suffix(".idx")):
        assert_reads(opened(name, WORDS), found, seed)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda idx, data: idx.write_bytes(b"WRONG" + idx.read_bytes()), "begins with"),
        (lambda idx, data: idx.write_bytes(idx.read_bytes()[:20]), "begins with"),
        (lambda idx, data: idx.write_bytes(idx.read_bytes()[:36]), "lists"),
        (lambda idx, data: data.write_bytes(data.read_bytes()[:-2]), "copy both"),
        (
            lambda idx, data: idx.write_bytes(
                idx.read_bytes()[:17] + b"\x06" + idx.read_bytes()[18:]
            ),
            "kind 6",
        ),
        (
            lambda idx, data: idx.write_bytes(
                idx.read_bytes()[:9] + b"\x02" + idx.read_bytes()[10:]
            ),
            "version 2",
        ),
    ],
)
def test_an_indexed_dataset_that_is_damaged_is_refused(
    broken: object, message: str, tmp_path: Path
) -> None:
    place = tmp_path / "corpus"
    write_megatron(place, documents(3), 8, "<u2")
    broken(place.with_suffix(".idx"), place.with_suffix(".bin"))  # type: ignore[operator]
    with pytest.raises(InstanceError, match=message):
        opened(place, WORDS)


def test_raw_numbers_have_the_width_of_the_vocabulary(tmp_path: Path) -> None:
    row = [1, 70_000, 3]
    file = tmp_path / "tokens"
    file.write_bytes(np.array(row, dtype="<u4").tobytes())
    assert opened(file, 100_000)[0:3].tolist() == row
    assert len(opened(file, 1000)) == 2 * len(row)
