"""Tables are read whatever their dialect, and where a file is wrong, the sentence names the place."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gwi.exceptions import UserError
from gwi.tables.parsing import numbers
from gwi.tables.source import open_table, open_text, read_parts, read_table
from gwi.tables.text import Utf8

PLAIN = "a,y\n1,2\n3,4\n"
RIGHT = {
    "plain": PLAIN.encode(),
    "byte order mark": b"\xef\xbb\xbf" + PLAIN.encode(),
    "utf-16 little end": PLAIN.encode("utf-16"),
    "utf-16 big end": b"\xfe\xff" + PLAIN.encode("utf-16-be"),
    "semicolon": PLAIN.replace(",", ";").encode(),
    "tab": PLAIN.replace(",", "\t").encode(),
    "bar": PLAIN.replace(",", "|").encode(),
    "windows lines": PLAIN.replace("\n", "\r\n").encode(),
    "old mac lines": PLAIN.replace("\n", "\r").encode(),
    "no last newline": PLAIN.rstrip().encode(),
    "blank lines": b"\n\na,y\n1,2\n\n3,4\n\n\n",
    "blanks around names": b" a , y \n1,2\n3,4\n",
    "quoted": b'"a","y"\n"1","2"\n"3","4"\n',
    "gzip": gzip.compress(PLAIN.encode()),
    "gzip of utf-16": gzip.compress(PLAIN.encode("utf-16")),
}
WRONG = {
    "empty": (b"", "is empty"),
    "blank lines only": (b"\n\r\n", "is empty"),
    "empty gzip": (gzip.compress(b""), "is empty"),
    "header only": (b"a,y\n", "no rows"),
    "header without newline": (b"a,y", "no rows"),
    "a short row": (b"a,y\n1,2\n3\n", "line 3: 1 cell where the header has 2"),
    "a long row": (b"a,y\n1,2,3\n", "line 2: 3 cells where the header has 2"),
    "a short row after a cell of two lines": (b'a,y\n"1\n",2\n3\n', "line 4: 1 cell"),
    "a short row after blank lines": (b"\n\na,y\n1,2\n3\n", "line 5: 1 cell"),
    "a quotation without end": (b'a,y\n1,2\n3,"4\n', "line 3: a quotation mark"),
    "equal names": (b"a,a,y\n1,2,3\n", "line 1: more than one column is called 'a'"),
    "no name": (b"a,,y\n1,2,3\n", "line 1: column 2 of 3 has no name"),
    "trailing delimiter": (b"a,y,\n1,2,\n", "column 3 of 3 has no name"),
    "numbers for names": (b"1,2\n3,4\n", "line 1: the first line holds numbers, not names"),
    "NUL": (b"a,y\n1,2\n3\0,4\n", "line 3: there is a NUL"),
    "utf-16 without mark": (PLAIN.encode("utf-16-le"), "line 1: there is a NUL"),
    "latin 1": ("a,y\nKöln,1\n".encode("latin-1"), "line 2: the text is not UTF-8"),
    "half of utf-16": (PLAIN.encode("utf-16")[:-1], "is not UTF-16"),
    "cut gzip": (gzip.compress(PLAIN.encode() * 99)[:-9], "damaged gzip"),
    "no gzip after its mark": (b"\x1f\x8bnothing", "damaged gzip"),
    "wrong Parquet footer": (b"PAR1" + b"x" * 40 + b"PAR1", "damaged Parquet"),
    "cut Parquet": (b"PAR1abc", "damaged Parquet"),
    "spreadsheet": (b"PK\x03\x04 ...", "spreadsheet"),
}


def written(folder, content, name="data.csv"):
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("content", RIGHT.values(), ids=RIGHT)
def test_every_dialect_gives_the_same_table(tmp_path, content):
    table = read_table(written(tmp_path, content))
    assert table.names == ("a", "y")
    assert table.data.to_pydict() == {"a": ["1", "3"], "y": ["2", "4"]}


@pytest.mark.parametrize(("content", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_refused_in_one_sentence_with_its_place(tmp_path, content, said):
    path = written(tmp_path, content)
    with pytest.raises(UserError) as caught:
        read_table(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_a_folder_and_a_false_parquet_are_refused(tmp_path):
    for path, said in ((tmp_path / "none.csv", "cannot be read"), (tmp_path, "is a folder")):
        with pytest.raises(UserError, match=said):
            open_table(path)
    with pytest.raises(UserError, match="not a Parquet file"):
        open_table(written(tmp_path, PLAIN.encode(), "data.parquet"))


def test_decimal_commas_are_told_from_delimiters(tmp_path):
    assert open_table(written(tmp_path, b"a;y\n1,5;2\n")).decimal == ","
    assert open_table(written(tmp_path, b"a;y\n1,5;2.5\n")).decimal == "."
    assert open_table(written(tmp_path, b"a,y\n1,5\n")).decimal == "."


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_parts_are_the_whole(tmp_path, kind):
    path = tmp_path / f"data.{kind}"
    if kind == "csv":
        path.write_text("a,y\n" + "".join(f"{i},{i}\n" for i in range(25)))
    else:
        pq.write_table(pa.table({"a": list(range(25)), "y": list(range(25))}), path)
    parts = list(read_parts(open_table(path), 10))
    assert [len(table) for table, _ in parts] == [10, 10, 5]
    assert np.concatenate([table.number for table, _ in parts]).tolist() == list(range(25))
    assert [int(v) for table, _ in parts for v in table.column("a").to_pylist()] == list(range(25))
    where = "line 22" if kind == "csv" else "row 21"
    assert parts[2][0].place(0, "a") == f"{path}, {where}, column 'a'"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_whatever_ends_them(tmp_path, end, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_bytes(f"{end * 2}a,b{end}1,2{end}3,4{end}".encode())
    assert open_table(path).lines([0, 1]) == [4, 5]
    # Blocks that cut a line end in two.
    monkeypatch.setattr("gwi.tables.text.BLOCK", 1)
    assert open_table(path).lines([0, 1]) == [4, 5]
    for wrong, said in ((b"\0", "there is a NUL"), (b"\xff", "the text is not UTF-8")):
        path.write_bytes(f"{end * 2}a,b{end}1,2{end}3,".encode() + wrong)
        with pytest.raises(UserError, match=f"line 5: {said}"):
            open_table(path)
    path.write_bytes(f"{end * 2}a,a{end}1,2{end}".encode())
    with pytest.raises(UserError, match="line 3: more than one column is called 'a'"):
        open_table(path)


@pytest.mark.parametrize("num_rows", [3, 100_000])
def test_a_quotation_in_the_header_that_never_ends_is_one_sentence(tmp_path, num_rows):
    path = tmp_path / "a.csv"
    path.write_text('\n"a,b\n' + "1,2\n" * num_rows)
    with pytest.raises(UserError, match="line 2: a quotation mark opens a cell that never ends"):
        open_table(path)


def test_text_in_memory_takes_no_more_room_than_it_has():
    text = Utf8(Path("text"), False, PLAIN.encode())
    assert text.read(1 << 40) == PLAIN.encode()
    assert text.read(1) == b""
    assert Utf8(Path("text"), False, PLAIN.encode()).read() == PLAIN.encode()


@pytest.mark.parametrize("decimal", [".", ","])
def test_numbers_are_the_same_whether_all_cells_are_plain_or_one_is_not(decimal):
    cells = ["0", "-0", "12", "1e5", "0.1", "-2.50", ".5", "5.", "1e-320", "123456789012345678", "0.30000000000000004"]
    lines = [f"{i};{cell.replace('.', decimal)}" for i, cell in enumerate(cells)]

    def found(more):
        table = next(read_parts(open_text("\n".join(["a;y", *lines, *more]).encode(), "text"), 100))[0]
        return numbers(table, "y")

    expected = np.array(cells, dtype=float)
    assert found([]).tobytes() == expected.tobytes()
    for odd in ("", " 1 ", "NA"):
        np.testing.assert_array_equal(found([f"9;{odd}"])[:-1], expected)


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e999", "nAn", "one"])
def test_what_is_no_finite_number_is_named_in_a_column_of_plain_ones(cell):
    table = next(read_parts(open_text(f"a,y\n1,2\n3,{cell}\n".encode(), "text"), 100))[0]
    with pytest.raises(UserError, match="text, line 3, column 'y'"):
        numbers(table, "y")


def test_a_header_longer_than_the_sample_is_read_whole():
    names = [f"{'n' * 30_000}{i}" for i in range(4)]
    source = open_text(f"\n\n{','.join(names)}\n1,2,3,4\n".encode(), "text")
    assert source.header == tuple(names)
    assert read_table(source).column(names[3]).to_pylist() == ["4"]
