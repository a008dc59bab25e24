"""Commands answer as they did: `python tests/frozen.py` says what is different."""

import frozen
import pytest


def test_every_command_has_an_answer() -> None:
    asked = [pair for pair in frozen.commands() if pair[1].startswith("hetopt ")]
    groups = dict(asked)
    assert [(name, line) for name in groups for line in frozen.kept_of(name)] == asked
    assert {path.stem for path in frozen.FOLDER.glob("*.json")} == set(groups)
    assert len(asked) >= 80


@pytest.mark.slow
def test_answers_are_as_they_were() -> None:
    assert list(frozen.differences([])) == []
