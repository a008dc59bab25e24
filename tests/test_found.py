"""What the soak tries: a few fixed seeds of each kind, and every input it ever kept."""

import json

import pytest
import soak
import soaking
from hypothesis import settings

_SHARE = 25  # of a thousand trials


@pytest.mark.parametrize("kind", soaking.kinds())
def test_a_few_trials_of_each_kind_find_nothing(kind):
    for seed in range(1 + soaking.kind(kind).WEIGHT * _SHARE // 1000):
        assert soaking.kind(kind).check(soaking.drawn(kind, seed))


@pytest.mark.parametrize(
    "path", sorted(soaking.FOUND.glob("*.json")), ids=lambda path: path.stem
)
def test_what_the_soak_once_found_is_mended(path):
    kept = json.loads(path.read_text())
    assert soaking.kind(kept["kind"]).check(kept["data"])


def test_the_default_tests_draw_the_same_examples_each_time():
    assert settings.get_profile("hetopt").derandomize
    assert not settings.get_profile("long").derandomize


def test_a_contradiction_is_kept_and_replayed(tmp_path, monkeypatch, capsys):
    """A kind that lies at its third trial is found, written and told."""

    class Lying:
        WEIGHT = 1

        @staticmethod
        def draw(rng):
            return {"number": rng.randrange(10**9)}

        @staticmethod
        def check(data):
            if data == soaking.drawn("lying", 7):
                raise soaking.Contradiction("said 1, is 2")
            return "fine"

    monkeypatch.setattr(soaking, "kinds", lambda: ("lying",))
    monkeypatch.setattr(soaking, "kind", lambda name: Lying)
    monkeypatch.setattr(soaking, "FOUND", tmp_path)
    assert soak.main(["--seed", "5", "--trials", "4"]) == 1
    kept = json.loads((tmp_path / "lying-7.json").read_text())
    assert kept["message"] == "Contradiction: said 1, is 2"
    with pytest.raises(soaking.Contradiction):
        Lying.check(kept["data"])
    printed = capsys.readouterr().out
    assert "3 fine, 1 FOUND" in printed
    assert "lying-7.json" in printed
