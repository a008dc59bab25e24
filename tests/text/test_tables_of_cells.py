"""Tables are read cell by cell, or refused with the line that is none."""

from pathlib import Path

import pytest
from disk import put

from hetopt.errors import InstanceError
from hetopt.text.parsing import read_table


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2,3\n", "line 2: found 3 cells, expected 2"),
        ("a;b\n1;2\n1;2;3\n", "line 3: found 3 cells, expected 2"),
        ("a,b,a\n1,2,3\n", "line 1: found the column a twice"),
        ('[{"a": 1}]', "found JSON, expected CSV"),
        ('{"a": [1]}', "found JSON, expected CSV"),
        (
            "JobID  Elapsed\n------ -------\n1  00:01:00\n",
            "print them with --parsable2",
        ),
    ],
)
def test_a_table_that_would_be_misread_is_refused(
    text: str, message: str, tmp_path: Path
) -> None:
    path = put(tmp_path / "table.csv", text)
    with pytest.raises(InstanceError, match=message):
        [*read_table(path).rows]


@pytest.mark.parametrize("text", ["a,b\n1,2,,\n", "a|b|\n1|2|\n", 'a,b\n1,"2"\n'])
def test_empty_cells_behind_the_last_column_say_nothing(
    text: str, tmp_path: Path
) -> None:
    ((_, cells),) = read_table(put(tmp_path / "table.csv", text)).rows
    assert (cells["a"], cells["b"]) == ("1", "2")
