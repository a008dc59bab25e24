"""Quantities with units: what is written is read again, two readings are asked for."""

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import examples

from hetopt.text import units
from hetopt.text.units import Quantity

QUANTITIES = {
    name: one for name, one in vars(units).items() if isinstance(one, Quantity)
}
SAID = {
    "SECONDS": {
        "3d": 259_200,
        "90min": 5400,
        "1h30m": 5400,
        "1h 30min": 5400,
        "2d12h5m": 216_300,
        "45s": 45,
        "250ms": "1/4",
        "1.5 h": 5400,
        "7": 7,
    },
    "MICROSECONDS": {"5us": 5, "0.1ms": 100, "2s": 2_000_000},
    "GBYTES_PER_S": {
        "25GbE": "25/8",
        "400Gb/s": 50,
        "400Gbps": 50,
        "400 Gbit/s": 50,
        "25GB/s": 25,
        "800MB/s": "4/5",
        "2GiB/s": Fraction(2 * 2**30, 10**9),
    },
    "CARD_GIB": {"80GB": 80, "80GiB": 80, "24576MiB": 24},
    "MIB": {"512MiB": 512, "2GiB": 2048, "2GB": Fraction(2 * 10**9, 2**20)},
    "COUNT": {"1M": 10**6, "15T": 15 * 10**12, "1.5B": 15 * 10**8, "128Ki": 131_072},
    "LENGTH": {"128Ki": 131_072, "8192": 8192},
    "SHARE": {"5%": "1/20", "0.05": "1/20"},
    "USD": {"5500": 5500, "$5500": 5500, "5500USD": 5500, "$ 5.5k": 5500},
    "USD_PER_HOUR": {"$2.49": "2.49", "2.49USD/h": "2.49", "$60/day": "2.5"},
}
AMBIGUOUS = {
    "SECONDS": ["1m", "2M"],
    "GBYTES_PER_S": ["25G", "25gb/s", "25GBPS", "25Gb"],
    "LENGTH": ["128k", "1M"],
    "COUNT": ["1m"],
}


DENOMINATORS = st.sampled_from([1, 2, 8, 100, 1000])
NUMBERS = st.builds(Fraction, st.integers(1, 10**6), DENOMINATORS)


@examples(150)
@given(data=st.data(), value=NUMBERS)
def test_every_unit_is_a_multiple_of_the_bare_one(
    data: st.DataObject, value: Fraction
) -> None:
    quantity = QUANTITIES[data.draw(st.sampled_from(sorted(QUANTITIES)))]
    unit = data.draw(st.sampled_from(sorted(quantity.units)))
    shown = str(float(value))
    text = f"{shown}{data.draw(st.sampled_from(['', ' ']))}{unit}"
    expected = Fraction(shown) * quantity.units[unit]
    assert units.parse(text, quantity) == expected
    assert units.parse_with_unit(text, quantity) == expected
    assert re.search(quantity.pattern, text)


@pytest.mark.parametrize("name", sorted(SAID))
def test_quantities_as_people_write_them(name: str) -> None:
    for text, value in SAID[name].items():
        assert units.parse(text, QUANTITIES[name]) == Fraction(value), text


@pytest.mark.parametrize("name", sorted(AMBIGUOUS))
def test_what_can_be_read_in_two_ways_is_refused(name: str) -> None:
    quantity = QUANTITIES[name]
    for text in AMBIGUOUS[name]:
        assert not re.search(quantity.pattern, text)
        with pytest.raises(ValueError, match="expected"):
            units.parse(text, quantity)


@examples(150)
@given(name=st.sampled_from(sorted(QUANTITIES)), text=st.text(max_size=70))
def test_any_text_is_read_or_refused_in_words(name: str, text: str) -> None:
    quantity = QUANTITIES[name]
    try:
        value = units.parse(text, quantity)
    except ValueError as error:
        words = str(error)
    else:
        words = f"found {value}" if value >= 0 else "less than nothing"
    assert "found" in words
