"""Recoveries on files: every byte arrives where the new plan needs it, or nothing."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples
from random_recoveries import (
    contents,
    expected,
    llama,
    made,
    random_content,
    random_manifest,
    random_recovery,
    random_training_plan,
    shards_of,
)
from safetensors.numpy import save_file

from hetopt import checkpoints
from hetopt.checkpoints import Manifest, Tensor, Unit, copying
from hetopt.checkpoints.tensor_files import header_bytes, read_header
from hetopt.errors import InstanceError
from hetopt.plans import Pipeline, Recovery, Replica, Stage, TrainingPlan, Transfer


def staged(*stages: tuple[str, int, int]) -> TrainingPlan:
    """One pipeline of (node, number of layers, degree)."""
    found, first = [], 0
    for node, layers, degree in stages:
        replica = Replica(gpus=tuple(f"{node}:{rank}" for rank in range(degree)))
        found.append(Stage(layers=(first, first + layers), replicas=(replica,)))
        first += layers
    return TrainingPlan(pipelines=(Pipeline(micro_batches=1, stages=tuple(found)),))


def recovered(
    old: Path,
    new: Path,
    manifest: Manifest,
    plan: TrainingPlan,
    seed: int = 0,
    slices: int = 1,
) -> Recovery:
    """The random recovery for a plan from all that lies in `old`, carried out."""
    needs = list(checkpoints.needs(plan, manifest))
    saved = checkpoints.catalogue(old)
    recovery = random_recovery(Random(seed), saved, needs, slices)
    checkpoints.apply(recovery, old, new)
    return recovery


def everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file below a folder: its bytes and when it was last written."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --- bytes arrive ----------------------------------------------------------------


@given(
    seed=st.integers(0, 10**9),
    chunk=st.sampled_from([13, 100, 1000, 1 << 22]),
    page=st.sampled_from([1, 16, 4096]),
    slices=st.sampled_from([1, 3, 7]),
)
@examples(10)
def test_any_change_of_plan_is_exact_to_the_bit(
    seed: int, chunk: int, page: int, slices: int
) -> None:
    rng = Random(seed)
    manifest, content = random_manifest(rng, 2), random_content(seed)
    old, new = (random_training_plan(rng, 2) for _ in range(2))
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "CHUNK", chunk)
        patch.setattr(copying, "_PAGE", page)
        before, after = Path(name) / "old", Path(name) / "new"
        made(before, manifest, old, content)
        recovered(before, after, manifest, new, seed, slices)
        shards = shards_of(new, manifest)
        assert contents(after) == expected(manifest, shards, content)
        assert checkpoints.catalogue(after) == tuple(shards)
        assert checkpoints.read_manifest(after) == manifest


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_degrees_one_two_four_two_one_end_where_they_began(
    tmp_path: Path, dtype: Any
) -> None:
    manifest = llama(dtype=dtype)
    plans = [
        staged(("a", 4, 1)),
        staged(("a", 1, 2), ("b", 3, 2)),
        staged(("b", 2, 4), ("c", 1, 4), ("a", 1, 4)),
        staged(("c", 4, 2)),
        staged(("a", 4, 1)),
    ]
    content = random_content(1)
    made(tmp_path / "0", manifest, plans[0], content)
    for step, plan in enumerate(plans[1:]):
        recovered(tmp_path / str(step), tmp_path / str(step + 1), manifest, plan)
        shards = shards_of(plan, manifest)
        found = contents(tmp_path / str(step + 1))
        assert found == expected(manifest, shards, content)
    assert contents(tmp_path / "4") == contents(tmp_path / "0")


def test_a_shard_of_a_fused_matrix_is_the_shards_of_its_parts(tmp_path: Path) -> None:
    parts = {"q": 16, "k": 8, "v": 8}
    apart = [
        Tensor(name=n, dtype="F32", shape=(r, 3), axis=0) for n, r in parts.items()
    ]
    fused = Tensor(name="qkv", dtype="F32", shape=(32, 3), axis=0, blocks=(16, 8, 8))
    manifest = Manifest(model="m", units=(Unit(name="0", tensors=(*apart, fused)),))
    random = random_content(3)

    def content(unit: Unit, tensor: Tensor) -> bytes:
        chosen = apart if tensor is fused else [tensor]
        return b"".join(random(unit, one) for one in chosen)

    made(tmp_path / "old", manifest, staged(("a", 1, 2)), content)
    recovered(tmp_path / "old", tmp_path / "new", manifest, staged(("a", 1, 4)))
    for tensors in contents(tmp_path / "new").values():
        assert tensors["qkv"] == tensors["q"] + tensors["k"] + tensors["v"]


def test_files_of_the_library_are_read_and_ours_are_as_the_library_orders_them(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.safetensors"
    arrays = {
        "b": np.arange(12, dtype=np.float32).reshape(3, 4),
        "a": np.arange(5, dtype=np.uint8),
        "c": np.arange(6, dtype=np.float16).reshape(2, 3),
    }
    save_file(arrays, path, {"who": "the library"})
    found = read_header(path)
    assert found.metadata == {"who": "the library"}
    data = path.read_bytes()
    for name, array in arrays.items():
        held = found.tensors[name]
        assert held.shape == array.shape
        assert data[held.offset : held.offset + held.size] == array.tobytes()
    shapes = {name: (held.dtype, held.shape) for name, held in found.tensors.items()}
    header, order = header_bytes(shapes, {"who": "the library"})
    assert data == header + b"".join(arrays[name].tobytes() for name in order)


@pytest.mark.parametrize("second", [(4, 12), (9, 17)])
def test_tensors_that_overlap_or_leave_a_gap_are_refused(
    tmp_path: Path, second: tuple[int, int]
) -> None:
    path = tmp_path / "a.safetensors"
    entries = {
        name: {"dtype": "F32", "shape": [2], "data_offsets": list(offsets)}
        for name, offsets in (("a", (0, 8)), ("b", second))
    }
    text = json.dumps(entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(second[1]))
    with pytest.raises(InstanceError, match="expected no gap and no overlap"):
        read_header(path)


# --- nothing is written ----------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Manifest, Recovery]:
    """A checkpoint at degree 2, and its recovery at degree 4."""
    manifest = llama()
    old = tmp_path / "old"
    made(old, manifest, staged(("a", 2, 2), ("b", 2, 2)), random_content(2))
    needs = list(checkpoints.needs(staged(("a", 4, 4)), manifest))
    return old, manifest, random_recovery(Random(0), checkpoints.catalogue(old), needs)


def truncated(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)


def retyped(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"BF16"', b'"F16" ', 1))


def reshaped(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"[48,32]", b"[32,48]", 1))


def renamed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"mlp.up"', b'"mlp.UP"', 1))


def endless(path: Path) -> None:
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])


def overlapping(path: Path) -> None:
    text = path.read_bytes()
    first = text.index(b"data_offsets")
    start = text.index(b"[0,", first)
    path.write_bytes(text[:start] + b"[8," + text[start + 3 :])


def linked(path: Path) -> None:
    outside = path.parent.parent.parent / "outside.safetensors"
    path.rename(outside)
    path.symlink_to(outside)


DAMAGE: list[tuple[Callable[[Path], object], str]] = [
    (Path.unlink, "found no such file, expected a saved shard"),
    (truncated, r"expected \d+ by the file's header: it is truncated"),
    (lambda path: path.write_bytes(b""), "found 0 bytes, .* truncated"),
    (lambda path: path.write_bytes(path.read_bytes()[:40]), "truncated"),
    (lambda path: path.write_bytes(path.read_bytes() + b"x"), "longer than that"),
    (retyped, r"found F16 .*, expected BF16"),
    (reshaped, r"found BF16 \[32, 48\], expected BF16 \[48, 32\]"),
    (renamed, "found no tensor 'mlp.up'"),
    (endless, "found a header of 18446744073709551615 bytes"),
    (overlapping, "data_offsets"),
    (linked, "found a link that leads out"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE)
def test_a_damaged_shard_is_named_before_anything_is_written(
    saved: tuple[Path, Manifest, Recovery],
    tmp_path: Path,
    damage: Callable[[Path], object],
    message: str,
) -> None:
    old, _, recovery = saved
    damage(old / "b" / "3.tp1of2.safetensors")
    with pytest.raises(InstanceError, match=rf"3\.tp1of2\.safetensors: .*{message}"):
        checkpoints.apply(recovery, old, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_every_missing_shard_is_named(
    saved: tuple[Path, Manifest, Recovery], tmp_path: Path
) -> None:
    old, _, recovery = saved
    shutil.rmtree(old / "b")
    with pytest.raises(InstanceError) as told:
        checkpoints.apply(recovery, old, tmp_path / "new")
    assert str(told.value).count("found no such file") == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit": "9"}, 'unit: found "9", expected one that manifest.json lists'),
        ({"shard": (2, 2)}, "shard: found rank 2 of 2"),
        ({"shard": (1, 2)}, "part: found 0 to 1/4 of the unit"),
        ({"part": (0, 1, 8)}, "unit '0': found none for what lies from 1/8"),
        ({"gpu": "cloud:0"}, "a node named 'cloud'"),
        ({"gpu": "../x:0"}, "expected one that can name a folder"),
        ({"gpu": ".:0"}, "expected one that can name a folder"),
        ({"source": "../old/a"}, "expected one that can name a folder"),
    ],
)
def test_a_plan_that_fits_no_checkpoint_is_refused(
    saved: tuple[Path, Manifest, Recovery],
    tmp_path: Path,
    change: dict[str, Any],
    message: str,
) -> None:
    old, _, recovery = saved
    transfers = [
        one.model_copy(update=change)
        if (one.unit, one.part) == ("0", (0, 1, 4))
        else one
        for one in recovery.transfers
    ]
    with pytest.raises(InstanceError, match=message):
        checkpoints.apply(Recovery(transfers=tuple(transfers)), old, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([(0, 1, 4), (2, 4, 4)], "a gap between 1/4 and 1/2"),
        ([(0, 2, 4), (1, 4, 4)], "an overlap between 1/2 and 1/4"),
        ([(0, 2, 4), (0, 2, 4)], "an overlap between 1/2 and 0"),
        ([(0, 3, 4)], "0 to 3/4 of the unit, expected the part of a"),
        ([(1, 3, 4)], "1/4 to 3/4 of the unit, expected the part of a"),
    ],
)
def test_the_parts_of_a_rank_follow_one_another(
    tmp_path: Path, parts: list[tuple[int, int, int]], message: str
) -> None:
    manifest = llama()
    old = tmp_path / "old"
    made(old, manifest, staged(("a", 4, 1)), random_content(2))
    one = Transfer(
        gpu="a:0", unit="0", shard=(0, 1), part=(0, 1, 1), source="a", medium="disk"
    )
    transfers = [one.model_copy(update={"part": part}) for part in parts]
    with pytest.raises(InstanceError, match=rf"'0' to a:0: found {message}"):
        checkpoints.apply(Recovery(transfers=tuple(transfers)), old, tmp_path / "new")


def test_a_plan_that_would_lose_a_part_of_a_unit_is_refused(
    saved: tuple[Path, Manifest, Recovery], tmp_path: Path
) -> None:
    old, _, recovery = saved
    fewer = [one for one in recovery.transfers if (one.gpu, one.unit) != ("a:2", "1")]
    with pytest.raises(InstanceError, match=r"unit '1': found none for .* from 1/2"):
        checkpoints.apply(Recovery(transfers=tuple(fewer)), old, tmp_path / "new")


def test_a_degree_that_cuts_a_row_in_two_is_refused(tmp_path: Path) -> None:
    manifest = llama(kv=32)
    content = random_content(0)
    made(tmp_path / "old", manifest, staged(("a", 4, 1)), content)
    plan = staged(("a", 4, 3))
    recovery = random_recovery(
        Random(0),
        checkpoints.catalogue(tmp_path / "old"),
        list(checkpoints.needs(plan, manifest)),
    )
    with pytest.raises(
        InstanceError, match=r"found 32 along axis 0.*into 3 equal parts"
    ):
        checkpoints.apply(recovery, tmp_path / "old", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks": [4, 4]}, "has blocks of 8 in all, expected 16"),
        ({"axis": 2}, "has 2 axes, counted from 0: found axis 2"),
        ({"axis": None, "blocks": [16]}, "has blocks of 16 in all, expected None"),
        ({"dtype": "BF17"}, 'found "BF17", expected one of "BOOL"'),
        ({"shape": [16, -1]}, r"shape\[1\]: found -1"),
        ({"name": "__metadata__"}, "keeps for itself"),
        ({"file": "../../etc/passwd"}, "unknown field"),
    ],
)
def test_a_wrong_manifest_is_refused_by_its_field(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    tensor = {"name": "w", "dtype": "F32", "shape": [16, 4], "axis": 0} | change
    tree = {
        "format": "hetopt-checkpoint",
        "version": 1,
        "model": "m",
        "units": [{"name": "0", "tensors": [tensor]}],
    }
    (tmp_path / "manifest.json").write_text(json.dumps(tree))
    with pytest.raises(InstanceError, match=message):
        checkpoints.read_manifest(tmp_path)


@pytest.mark.parametrize("name", ["../0", "", "a/b", ".hidden", "x" * 65])
def test_a_unit_is_never_a_path(tmp_path: Path, name: str) -> None:
    tensor = {"name": "w", "dtype": "F32", "shape": [4]}
    tree = {"model": "m", "units": [{"name": name, "tensors": [tensor]}]}
    (tmp_path / "manifest.json").write_text(json.dumps(tree))
    with pytest.raises(InstanceError, match=r"units\[0\]\.name: found"):
        checkpoints.read_manifest(tmp_path)


def test_the_catalogue_passes_over_what_is_no_shard(
    saved: tuple[Path, Manifest, Recovery],
) -> None:
    old, _, _ = saved
    before = checkpoints.catalogue(old)
    for name in ("0.tp2of2", "0.tp00of2", "9.tp0of1", "0.tp0of0", "0"):
        (old / "a" / f"{name}.safetensors").touch()
    (old / "a" / "0.tp0of1.safetensors").mkdir()
    (old / ".0.tp0of1.safetensors.0123456789ab.tmp").touch()
    assert checkpoints.catalogue(old) == before
    assert len(before) == 2 * 6


# --- where to --------------------------------------------------------------------


def test_the_checkpoint_and_other_folders_are_not_written_to(
    saved: tuple[Path, Manifest, Recovery], tmp_path: Path
) -> None:
    old, _, recovery = saved
    for out in (old, old / "below"):
        with pytest.raises(InstanceError, match="the old checkpoint stays as it is"):
            checkpoints.apply(recovery, old, out)
    file = tmp_path / "file"
    file.touch()
    for out in (tmp_path, file):
        with pytest.raises(InstanceError, match="found it in use, expected an empty"):
            checkpoints.apply(recovery, old, out)
    (tmp_path / "empty").mkdir()
    checkpoints.apply(recovery, old, tmp_path / "empty")


def test_progress_ends_with_every_byte(
    saved: tuple[Path, Manifest, Recovery], tmp_path: Path
) -> None:
    old, _, recovery = saved
    told: list[tuple[int, int]] = []
    done = checkpoints.apply(
        recovery, old, tmp_path / "new", lambda *now: told.append(now)
    )
    assert told == sorted(told)
    assert told[-1] == (done.bytes_written, done.bytes_written)
