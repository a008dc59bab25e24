"""The module says what to rent, at what cost: a sentence and rows."""

from collections.abc import Iterator

from ..api.renting import NO_TIME, Rental, Rentals
from . import words
from .sheet import Section, Sheet, Table

_COLUMNS = (
    *("to rent", "at", "USD per hour", "time", "USD", "USD at least"),
    *("tokens/s per GPU", "in time"),
)
_TEXTS = ("to rent", "at", "in time")
_SAID = 3  # cards that the first line names


def answer(found: Rentals) -> str:
    """Return what is cheapest, until when, and what the run costs on other cards."""
    return _said(found) + words.unfinished((), complete=found.complete)


def _said(found: Rentals) -> str:
    run, best = f"{words.tokens(found.tokens)} of {found.model}", found.best
    if best is None:
        if not found.rows:
            return f"{run}: {_nothing(found)}."
        fastest = min(found.rows, key=lambda row: row.seconds)
        return (
            f"{run}: no machines tried finish{_by(found)}; the fastest is "
            f"{_price(fastest)}. Allow more GPUs of a card with --quota, or a longer "
            "--time-limit."
        )
    said = f"{run}: cheapest{_by(found)} is {_price(best)}"
    if found.least_usd is not None:
        least = f"{words.number(found.least_usd)} USD"
        said += f"; no plan on the machines tried costs less than {least} (proved)"
    others = [row for row in found.by_card if row is not best][: _SAID - 1]
    if others:
        late = {True: "", False: ", after the deadline"}
        told = (f"{_price(row)}{late[found.is_in_time(row)]}" for row in others)
        said += f". Alternatives: {'; '.join(told)}"
    dates = ", ".join(sorted({row.price.date for row in found.rows}))
    return f"{said}. Prices of {dates}."


def _nothing(found: Rentals) -> str:
    by = _by(found)
    if found.refuted:
        return (
            f"no machines within the quota can run it{by} (proved); allow more GPUs of "
            "a card with --quota, or other cards with --gpus"
        )
    said = f"no machines were found that can run it{by}"
    if NO_TIME in found.without.values():
        said += f", as {NO_TIME}; a longer --time-limit searches further"
    return said


def _by(found: Rentals) -> str:
    by = found.deadline_s
    return "" if by is None else f" within {words.duration(by)}"


def _price(row: Rental) -> str:
    cost, time = words.number(row.usd), words.duration(row.seconds)
    return f"{_machine_text(row)} at {row.price.cloud}: {cost} USD, {time}"


def _machine_text(row: Rental) -> str:
    many = words.counted(row.machines, "machine")
    return f"{many} of {row.price.gpus} × {row.price.card}"


def _table(found: Rentals) -> Table:
    rows = []
    for row in found.rows:
        speed = row.result.parts.get("tokens_per_second")
        rate = row.usd / row.seconds * 3600
        rows.append(
            (
                _machine_text(row),
                row.price.cloud,
                f"{rate:,.2f}",
                words.duration(row.seconds),
                words.number(row.usd),
                words.number(row.least_usd),
                words.NONE if speed is None else f"{speed / row.gpus:,.0f}",
                "yes" if found.is_in_time(row) else "no",
            )
        )
    return Table.of(_COLUMNS, rows, texts=_TEXTS)


def _notes(found: Rentals) -> Iterator[str]:
    """Yield why a card is not among the rows, whose prices these are, and what for."""
    for why in dict.fromkeys(found.without.values()):
        cards = (card for card, told in found.without.items() if told == why)
        yield f"Not on {', '.join(cards)}: {why}."
    sources = dict.fromkeys(f"{x.price.cloud} ({x.price.source})" for x in found.rows)
    if sources:
        yield f"Prices: {'; '.join(sources)}"
    yield (
        f"Batches of {found.batch:,} sequences of {found.sequence:,} tokens; one kind "
        "of card in each; storage and egress are not counted ('hetopt provision' mixes "
        "offers)."
    )


def sheet(found: Rentals) -> Sheet:
    """Return the answer, a row for each offer, and what has none."""
    sections = [Section(notes=tuple(_notes(found)))]
    if found.rows:
        sections.insert(0, Section("Offers", table=_table(found)))
    title = f"{found.model}, {words.tokens(found.tokens)}"
    return Sheet(title, tuple(sections), "what to rent", answer=answer(found))
