"""Deadlines as people say them, on a day that is given."""

from datetime import UTC, datetime

import pytest

from hetopt.text.moments import seconds_until

NOW = datetime(2026, 11, 26, 18, 0, tzinfo=UTC)  # a Thursday
HOUR = 3600


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("10d", 240),
        ("1h30min", 1.5),
        ("7200", 2),
        ("in 10 days", 240),
        ("2 weeks", 336),
        ("today", 6),
        ("Tomorrow", 30),
        ("by friday", 30),
        ("thursday", 6),
        ("Friday", 30),
        ("fri", 30),
        ("wed", 6 + 6 * 24),
        ("2026-11-26", 6),
        ("2026-12-01", 6 + 5 * 24),
        ("2026-11-27T06:00", 12),
        ("2026-11-27T06:00+02:00", 10),
    ],
)
def test_a_deadline_is_so_far_away(text: str, hours: float) -> None:
    assert seconds_until(text, NOW) == hours * HOUR


@pytest.mark.parametrize("text", ["soon", "t", "10 m", "2026-11-25", "2026-13-01", ""])
def test_what_is_no_deadline_or_over_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="found"):
        seconds_until(text, NOW)
