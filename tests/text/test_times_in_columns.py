"""Times in the columns of tables, in whichever unit a name or a cell tells."""

from datetime import UTC, datetime

import pytest

from hetopt.text import columns

NAMES = {"submit_s": ("submit_time", "timestamp"), "duration_s": ("duration",)}
DAY_S = 24 * 60 * 60


@pytest.mark.parametrize(
    ("name", "cell", "seconds"),
    [
        ("duration", "90", 90),
        ("duration_s", "90", 90),
        ("Duration (min)", "1.5", 90),
        ("duration_hours", "2", 7200),
        ("durationDays", "1.5", 1.5 * DAY_S),
        ("duration_d", "2", 2 * DAY_S),
        ("duration_ms", "1500", 1.5),
        # 30 days are more milliseconds than there were seconds in any year since 1970.
        ("duration_ms", str(30 * DAY_S * 1000), 30 * DAY_S),
        ("duration", "1-02:03:04", DAY_S + 2 * 3600 + 3 * 60 + 4),
        ("duration", "02:03", 2 * 60 + 3),
    ],
)
def test_a_duration_has_the_unit_of_its_column(
    name: str, cell: str, seconds: float
) -> None:
    found = columns.known([name, "gpus"], NAMES)["duration_s"]
    assert found.name == name
    assert columns.seconds(cell, found.unit_s) == pytest.approx(seconds)


@pytest.mark.parametrize("name", ["submit_time", "timestamp_ms", "SubmitTime"])
def test_moments_are_the_same_in_seconds_milliseconds_and_words(name: str) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    unit_s = columns.known([name], NAMES)["submit_s"].unit_s
    cells = [str(round(moment.timestamp() * 1000)), moment.isoformat()]
    if unit_s == 1:
        cells.append(str(round(moment.timestamp())))
    told = {columns.seconds(cell, unit_s) for cell in cells}
    assert told == {moment.timestamp() - columns.ORIGIN}
