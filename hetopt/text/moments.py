"""Deadlines as people say them: `10d`, `in 10 days`, `friday`, `2026-12-01T18:00`.

A day is kept until it ends, `tomorrow` as any; a day of the week is the next one that
has not ended, today included.
"""

from datetime import datetime, time, timedelta

from ..errors import quoted
from . import units

_DAYS = (
    *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
)
_AHEAD = {"today": 0, "tomorrow": 1}
_SHORTEST = 3  # letters of a day of the week


def seconds_until(text: str, now: datetime) -> float:
    """Return the seconds from now until a deadline; a `ValueError` says what is wrong.

    A time such as `10d` is from now on.
    """
    word = text.strip().lower().removeprefix("by ").removeprefix("in ")
    end = _end_of(word, now)
    if end is None:
        try:
            return float(units.parse(word, units.SECONDS))
        except units.TwoReadings:
            raise
        except ValueError:
            raise ValueError(
                f"found {quoted(text)}, expected a time such as 10d, a day of the "
                "week such as friday, or a date such as 2026-12-01"
            ) from None
    seconds = (end - now).total_seconds()
    if seconds <= 0:
        raise ValueError(f"found {quoted(text)}, which is past; name a later time")
    return seconds


def _end_of(word: str, now: datetime) -> datetime | None:
    """The moment that a day or a date names; None where it names none."""
    if word in _AHEAD:
        return _midnight_after(now + timedelta(days=_AHEAD[word]))
    day = [i for i, name in enumerate(_DAYS) if name.startswith(word)]
    if len(word) >= _SHORTEST and len(day) == 1:
        ahead = (day[0] - now.weekday()) % len(_DAYS)
        return _midnight_after(now + timedelta(days=ahead))
    try:
        named = datetime.fromisoformat(word)
    except ValueError:
        return None
    if "t" not in word and " " not in word:
        named = _midnight_after(named)
    return named if named.tzinfo is not None else named.replace(tzinfo=now.tzinfo)


def _midnight_after(day: datetime) -> datetime:
    return datetime.combine(day.date() + timedelta(days=1), time(), day.tzinfo)
