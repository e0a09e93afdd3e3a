"""Logs as tables of cells under names: CSV and JSON lines (packed or not), Parquet, data frames.

``reading`` interprets the cells.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.files import read_file
from restless_bandits.logs.cells import Cells, Place, Stamped
from restless_bandits.logs.clocks import zone_name

CHUNK = 1 << 9
"""Lines converted to numbers at a time: a long file is never held as text cells, and few lists at a time reduce the
work of the garbage collector.
"""
STRETCH = 1 << 16
"""Characters of a file that are split at a time."""
FIRST_LINES = 1 << 14
"""The number of objects searched for names."""
DELIMITERS = (",", ";", "\t")
JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = (".parquet", ".pq")
GZIP = b"\x1f\x8b"

Chunk = Sequence[Cells | Stamped]
"""Cells of some columns, of as many lines each."""


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a log by their names, with a reader of selected columns."""

    names: tuple[str, ...]
    chunks: Callable[[Sequence[int]], Iterator[Chunk]]
    """The cells of the columns at given positions, a block of lines at a time."""
    place: Place
    source: str = ""
    """The name of the file; empty for data in memory."""

    @property
    def called(self) -> str:
        """The label in messages."""
        return self.source or "the trace"


def table_of(source: Any) -> Table:
    """Return the table of a file, of a data frame of pandas or polars, of an Arrow table or of a mapping."""
    if isinstance(source, str | Path):
        return table_of_file(Path(source))
    if isinstance(source, Mapping):
        return table_in_memory({str(name): in_memory(cells) for name, cells in source.items()})
    if hasattr(source, "column_names") and hasattr(source, "column"):
        return table_in_memory({name: _of_arrow(source.column(name)) for name in source.column_names})
    if hasattr(source, "collect") and hasattr(source, "collect_schema"):
        source = source.collect()
    if hasattr(source, "get_columns") and hasattr(source, "schema"):
        return table_in_memory({series.name: _of_polars(series) for series in source.get_columns()})
    if hasattr(source, "columns") and hasattr(source, "index"):
        return table_in_memory(_of_pandas(source))
    raise ProblemError(
        f"{shortened(source)} is no log; give the path of a file, a frame of pandas or polars, or a mapping of columns"
    )


def table_of_file(path: Path) -> Table:
    """Return the table of a file; the file's name gives its format."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    kind = next((suffix for suffix in reversed(suffixes) if suffix != ".gz"), "")
    if kind in PARQUET:
        return _parquet(path)
    content = read_file(path)
    if content[:2] == GZIP:
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            raise ProblemError(f"cannot unpack {path.name}, which is cut or damaged; pack it again") from None
    if content[:4] == b"PAR1":
        raise ProblemError(f"{path.name} is a Parquet file; give it a name that ends in .parquet")
    text = _text(content, path.name)
    return _json_lines(text, path.name) if kind in JSON_LINES else csv_table(text, path.name)


def table_in_memory(columns: Mapping[str, Cells | Stamped]) -> Table:
    """Return a table of complete columns."""
    lengths = {name: len(cells.times if isinstance(cells, Stamped) else cells) for name, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ProblemError(f"columns have different lengths {lengths}; give an entry for every observation")
    cells = list(columns.values())

    def chunks(places: Sequence[int]) -> Iterator[Chunk]:
        if any(lengths.values()):
            yield [cells[place] for place in places]

    return Table(tuple(columns), chunks, "observation {}".format)


def _text(content: bytes, name: str) -> str:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ProblemError(f"{name} is in UTF-16; save it as CSV in UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ProblemError(
            f"{name}, line {line}: the byte {content[error.start]:#04x} is not UTF-8; save the file in UTF-8"
        ) from None


def csv_table(text: str, name: str) -> Table:
    def place(row: int) -> str:
        # Read again for the error message, which is needed only for invalid files.
        reader = _csv_reader(text)
        next(itertools.islice(filter(None, reader), row + 1, None))
        return f"{name}, line {reader.line_num}"

    header = [cell.strip() for cell in next(_csv_rows(text, name), [])]
    if not any(header):
        raise ProblemError(f"{name} is empty; begin it with a line such as time,arm,state")
    if header[0].startswith(tuple("0123456789+-.")):
        raise ProblemError(f"{name} has no header; begin it with a line such as time,arm,state")

    def chunks(places: Sequence[int]) -> Iterator[Chunk]:
        done = 0
        for columns in unquoted_columns(text, len(header)):
            if columns is None:
                break
            yield [columns[i] for i in places]
            done += len(columns[0])
        else:
            return
        rows = itertools.islice(_csv_rows(text, name), 1 + done, None)
        while chunk := list(itertools.islice(rows, CHUNK)):
            if set(map(len, chunk)) != {len(header)}:
                i, row = next((i, row) for i, row in enumerate(chunk) if len(row) != len(header))
                raise ProblemError(
                    f"{place(done + i)} has {len(row)} cells, the header has {len(header)}; "
                    "give every line as many as the header"
                )
            turned = list(zip(*chunk, strict=True))
            yield [turned[i] for i in places]
            done += len(chunk)

    return Table(tuple(header), chunks, place, name)


def _csv_reader(text: str) -> Any:
    return csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)


def _delimiter(text: str) -> str:
    first = text.lstrip().split("\n", 1)[0]
    return max(DELIMITERS, key=first.count)


def unquoted_columns(text: str, width: int) -> Iterator[list[list[str]] | None]:
    """The columns of a CSV file without quotation marks, a block at a time; None for files that need more care.

    A split of full blocks makes texts only; the row lists of a CSV reader take twice the time.
    """
    delimiter = _delimiter(text)
    first, start = True, 0
    while start < len(text):
        end = text.find("\n", start + STRETCH)
        end = len(text) if end < 0 else end
        block = text[start:end].replace("\r\n", "\n")
        block = block.removesuffix("\r") if end < len(text) else block.removesuffix("\n")
        if '"' in block or "\r" in block:
            yield None
            return
        # A separate cell marks the end of each line, and must be at the position for lines of this width.
        cells = block.replace("\n", f"{delimiter}\n{delimiter}").split(delimiter)
        lines = block.count("\n") + 1
        if len(cells) != lines * (width + 1) - 1 or cells[width :: width + 1].count("\n") != lines - 1:
            yield None
            return
        columns = [cells[i :: width + 1] for i in range(width)]
        if width == 1 and "" in columns[0]:
            yield None
            return
        if first:
            columns = [column[1:] for column in columns]
            first = False
        if columns[0]:
            yield columns
        start = end + 1


def _csv_rows(text: str, name: str) -> Iterator[list[str]]:
    """The nonempty lines of a CSV file; the header is the first."""
    reader = _csv_reader(text)
    try:
        yield from filter(None, reader)
    except csv.Error as error:
        raise ProblemError(f"{name}, line {reader.line_num}: {error}; check the quotation marks there") from None


def _json_lines(text: str, name: str) -> Table:
    # Only line feeds end a line: JSON may contain the other characters that Python takes for line ends.
    lines = text.split("\n")
    numbers = [i for i, line in enumerate(lines) if line and not line.isspace()]
    if not numbers:
        raise ProblemError(f"{name} is empty; give a JSON object a line, with time, arm and state or value")

    def place(row: int) -> str:
        return f"{name}, line {numbers[row] + 1}"

    def objects(start: int) -> list[dict[str, Any]]:
        rows = numbers[start : start + CHUNK]
        try:
            # A single call, in half of the time.
            found: list[dict[str, Any]] = json.loads("[" + ",".join([lines[i] for i in rows]) + "]")
        except (ValueError, RecursionError):
            found = []
        if len(found) != len(rows) or set(map(type, found)) != {dict}:
            found = [_json_object(lines[i], place(start + k)) for k, i in enumerate(rows)]
        return found

    firsts = itertools.chain.from_iterable(map(objects, range(0, min(len(numbers), FIRST_LINES), CHUNK)))
    names = tuple(dict.fromkeys(itertools.chain.from_iterable(firsts)))

    def chunks(places: Sequence[int]) -> Iterator[Chunk]:
        for start in range(0, len(numbers), CHUNK):
            rows = objects(start)
            yield [[row.get(names[i]) for row in rows] for i in places]

    return Table(names, chunks, place, name)


def _json_object(line: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        why = error.msg if isinstance(error, json.JSONDecodeError) else "it is nested too deeply"
        raise ProblemError(f"{where} is no JSON ({why}); give one object a line") from None
    if not isinstance(found, dict):
        raise ProblemError(f"{where} is {shortened(line.strip(), 40)}, which is no JSON object; give one a line")
    return found


def _parquet(path: Path) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise ProblemError(
            f"reading {path.name} needs pyarrow, which is not installed; pip install 'restless-bandits[logs]'"
        ) from None
    content = read_file(path)
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(content))
        names = tuple(file.schema_arrow.names)
    except pyarrow.ArrowException:
        raise ProblemError(f"{path.name} is no Parquet file, or is damaged; write it again") from None

    def place(row: int) -> str:
        return f"{path.name}, row {row + 1}"

    def chunks(places: Sequence[int]) -> Iterator[Chunk]:
        try:
            table = file.read([names[i] for i in places])
        except (pyarrow.ArrowException, OSError):
            raise ProblemError(f"{path.name} is damaged; write it again") from None
        if table.num_rows:
            yield [_of_arrow(table.column(names[i])) for i in places]

    return Table(names, chunks, place, path.name)


def _of_arrow(column: Any) -> Cells | Stamped:
    import pyarrow

    kind = column.type
    if pyarrow.types.is_timestamp(kind) and column.null_count == 0:
        stamps = column.to_numpy().astype("datetime64[us]")
        return Stamped(stamps, frozenset({zone_name(kind.tz)})) if kind.tz else stamps
    if (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind)) and column.null_count == 0:
        numbers: Cells = column.to_numpy()
        return numbers
    cells: list[Any] = column.to_pylist()
    return cells


def _of_polars(series: Any) -> Cells | Stamped:
    zone = getattr(series.dtype, "time_zone", None)
    if series.null_count():
        cells: list[Any] = series.to_list()
        return cells
    if zone:
        there = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return Stamped(there.to_numpy().astype("datetime64[us]"), frozenset({zone_name(zone)}))
    plain = series.dtype.is_numeric() or series.dtype.is_temporal()
    return _of_array(series.to_numpy()) if plain else list(series.to_list())


def _of_pandas(frame: Any) -> dict[str, Cells | Stamped]:
    columns = {}
    for place, name in enumerate(frame.columns):
        if str(name) in columns:
            raise ProblemError(f"the frame has two columns {str(name)!r}; keep one")
        columns[str(name)] = _of_series(frame.iloc[:, place])
    # Many frames keep times as their index; an index of unnamed numbers is not part of the log.
    index = frame.index
    name = index.name if index.name is not None else "time" if index.dtype.kind == "M" else None
    if name is None or str(name) in columns or getattr(index, "nlevels", 1) > 1:
        return columns
    return {str(name): _of_series(index), **columns}


def _of_series(series: Any) -> Cells | Stamped:
    zone = getattr(series.dtype, "tz", None)
    if zone is not None and not series.isna().any():
        there = (series.dt if hasattr(series, "dt") else series).tz_convert(None)
        stamps = there.to_numpy().astype("datetime64[us]")
        return Stamped(stamps, frozenset({zone_name(zone)}))
    return _of_array(series.to_numpy())


def _of_array(column: Any) -> Cells:
    flat = np.atleast_1d(column)
    if flat.dtype.kind == "M":
        return flat.astype("datetime64[us]")
    cells: Cells = flat if flat.dtype.kind in "biuf" else flat.tolist()
    return cells


def in_memory(column: Any) -> Cells | Stamped:
    """Return the cells of a column in memory: numbers and times as an array, other values as a list."""
    if hasattr(column, "to_pylist"):
        return _of_arrow(column)
    if hasattr(column, "null_count"):
        return _of_polars(column)
    if hasattr(column, "isna") and hasattr(column, "to_numpy"):
        return _of_series(column)
    if isinstance(column, np.ndarray | np.generic):
        return _of_array(column)
    if isinstance(column, str) or not hasattr(column, "__iter__"):
        return [column]
    # Names are kept unchanged: NumPy would turn a missing name among strings into the word nan.
    cells = list(column)
    return _of_array(np.array(cells)) if cells and all(isinstance(cell, np.generic) for cell in cells) else cells
