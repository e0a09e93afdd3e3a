"""Tables of columns under names: CSV and JSON lines (packed or not), Parquet, data frames, Arrow streams.

``cells`` interprets the cells of a column; the readers of logs and of arms choose the columns.
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

from restless_bandits._internal.cells import Cells, Place, Stamped, arrow, length_of, listed, zone_name
from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.files import read_file
from restless_bandits._internal.optional_dependencies import missing_extra

CHUNK = 1 << 9
"""Lines converted to columns at a time: few lists at a time reduce the work of the garbage collector."""
FIRST_LINES = 1 << 14
"""The number of objects searched for names."""
DELIMITERS = (",", ";", "\t")
JSON_LINES = (".jsonl", ".ndjson", ".json")
PARQUET = (".parquet", ".pq")
GZIP = b"\x1f\x8b"
LOG_HEADER = "time,arm,state"


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a table by their names, with a reader of selected columns."""

    names: tuple[str, ...]
    columns: Callable[[Sequence[int]], list[Cells]]
    """Reads the columns at given positions."""
    place: Place
    source: str = ""
    """The name of the file; empty for data in memory."""

    @property
    def called(self) -> str:
        """The label in messages."""
        return self.source or "the trace"


def table_of(source: Any, what: str = "log", row: str = "observation", header: str = LOG_HEADER) -> Table:
    """Return the table of a file, a data frame, an object with the Arrow stream interface, or a mapping.

    ``what``, ``row`` and ``header`` are for messages: the kind of table, its rows, and an example of its first line.
    """
    if isinstance(source, str | Path):
        return table_of_file(Path(source), header)
    if isinstance(source, Mapping):
        return table_in_memory({str(name): in_memory(cells) for name, cells in source.items()}, row)
    if hasattr(source, "columns") and hasattr(source, "index"):
        return table_in_memory(_of_pandas(source), row)
    if hasattr(source, "collect"):
        source = source.collect()
    if hasattr(source, "__arrow_c_stream__"):
        if (pyarrow := arrow()) is None:
            if hasattr(source, "to_dict"):
                return table_of(source.to_dict(as_series=False), what, row, header)
            raise ProblemError(_missing("an Arrow stream"))
        table = pyarrow.table(source)
        return table_in_memory(dict(zip(table.column_names, map(_of_arrow, table.columns), strict=True)), row)
    raise ProblemError(
        f"{shortened(source)} is no {what}; give the path of a file, a frame of pandas or polars, or a mapping of "
        "columns"
    )


def _missing(what: str) -> str:
    return missing_extra(f"reading {what}", "pyarrow", "logs")


def table_of_file(path: Path, header: str = LOG_HEADER) -> Table:
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
    return _json_lines(text, path.name) if kind in JSON_LINES else csv_table(text, path.name, header)


def table_in_memory(columns: Mapping[str, Cells], row: str = "observation") -> Table:
    """Return a table of complete columns."""
    lengths = {name: length_of(cells) for name, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ProblemError(f"columns have different lengths {lengths}; give an entry for every {row}")
    cells = list(columns.values())
    return Table(tuple(columns), lambda places: [cells[place] for place in places], f"{row} {{}}".format)


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


def csv_table(text: str, name: str, example: str = LOG_HEADER) -> Table:
    delimiter = max(DELIMITERS, key=text.lstrip().split("\n", 1)[0].count)

    def reader() -> Any:
        return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)

    def place(row: int) -> str:
        # Read again for the error message, which is needed only for invalid files.
        lines = reader()
        next(itertools.islice(filter(None, lines), row + 1, None))
        return f"{name}, line {lines.line_num}"

    def rows() -> Iterator[list[str]]:
        lines = reader()
        try:
            yield from filter(None, lines)
        except csv.Error as error:
            raise ProblemError(f"{name}, line {lines.line_num}: {error}; check the quotation marks there") from None

    header = [cell.strip() for cell in next(rows(), [])]
    if not any(header):
        raise ProblemError(f"{name} is empty; begin it with a line such as {example}")
    if header[0].startswith(tuple("0123456789+-.")):
        raise ProblemError(f"{name} has no header; begin it with a line such as {example}")

    def columns(places: Sequence[int]) -> list[Cells]:
        if (found := unquoted_columns(text, delimiter, len(header), places)) is not None:
            return found
        parts: list[Any] = [[] for _ in places]
        lines, done, pyarrow = itertools.islice(rows(), 1, None), 0, arrow()
        while chunk := list(itertools.islice(lines, CHUNK)):
            if set(map(len, chunk)) != {len(header)}:
                i, row = next((i, row) for i, row in enumerate(chunk) if len(row) != len(header))
                raise ProblemError(
                    f"{place(done + i)} has {len(row)} cells, the header has {len(header)}; "
                    "give every line as many as the header"
                )
            turned = list(zip(*chunk, strict=True))
            for part, i in zip(parts, places, strict=True):
                part.append(_packed(turned[i], pyarrow))
            done += len(chunk)
        return [_joined(part) for part in parts]

    return Table(tuple(header), columns, place, name)


def unquoted_columns(text: str, delimiter: str, width: int, places: Sequence[int]) -> list[Cells] | None:
    """The columns of a CSV file without quotation marks, by pyarrow; None for other files, and without pyarrow."""
    pyarrow = arrow()
    if pyarrow is None or '"' in text or text.count("\r") != text.count("\r\n"):
        return None
    # The header is read as a line of texts: its names may be equal.
    names = [f"f{place}" for place in places]
    try:
        table = pyarrow.csv.read_csv(
            pyarrow.BufferReader(text.encode()),
            pyarrow.csv.ReadOptions(autogenerate_column_names=True),
            pyarrow.csv.ParseOptions(delimiter=delimiter, quote_char=False),
            pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string()), include_columns=names),
        )
    except pyarrow.ArrowInvalid:
        return None
    return list(table.slice(1).columns)


def _packed(cells: Sequence[Any], pyarrow: Any) -> Any:
    """A block of a column, as an Arrow array if possible: long lists take memory, and time of the garbage collector."""
    if pyarrow is None:
        return cells
    try:
        return pyarrow.array(cells)
    except (pyarrow.ArrowException, ValueError, TypeError, OverflowError):
        return cells


def _joined(parts: Sequence[Any]) -> Cells:
    """A column of its blocks."""
    kinds = {getattr(part, "type", None) for part in parts}
    if len(kinds) == 1 and None not in kinds:
        return _of_arrow(arrow().chunked_array(parts))
    return [cell for part in parts for cell in listed(part)]


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

    def columns(places: Sequence[int]) -> list[Cells]:
        parts: list[Any] = [[] for _ in places]
        pyarrow = arrow()
        for start in range(0, len(numbers), CHUNK):
            rows = objects(start)
            for part, i in zip(parts, places, strict=True):
                part.append(_packed([row.get(names[i]) for row in rows], pyarrow))
        return [_joined(part) for part in parts]

    return Table(names, columns, place, name)


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
    if (pyarrow := arrow()) is None:
        raise ProblemError(_missing(path.name))
    content = read_file(path)
    try:
        file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content))
        names = tuple(file.schema_arrow.names)
    except pyarrow.ArrowException:
        raise ProblemError(f"{path.name} is no Parquet file, or is damaged; write it again") from None

    def place(row: int) -> str:
        return f"{path.name}, row {row + 1}"

    def columns(places: Sequence[int]) -> list[Cells]:
        try:
            table = file.read([names[i] for i in places])
        except (pyarrow.ArrowException, OSError):
            raise ProblemError(f"{path.name} is damaged; write it again") from None
        return [_of_arrow(table.column(names[i])) for i in places]

    return Table(names, columns, place, path.name)


def _of_arrow(column: Any) -> Cells:
    kind, types = column.type, arrow().types
    if types.is_timestamp(kind) and column.null_count == 0:
        stamps = column.to_numpy().astype("datetime64[us]")
        return Stamped(stamps, frozenset({zone_name(kind.tz)})) if kind.tz else stamps
    if (types.is_integer(kind) or types.is_floating(kind)) and column.null_count == 0:
        numbers: Cells = column.to_numpy()
        return numbers
    if (types.is_string(kind) or types.is_large_string(kind)) and column.null_count == 0:
        return column
    cells: list[Any] = column.to_pylist()
    return cells


def _of_pandas(frame: Any) -> dict[str, Cells]:
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


def _of_series(series: Any) -> Cells:
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


def in_memory(column: Any) -> Cells:
    """Return the cells of a column in memory: numbers and times as an array, other values as a list."""
    if hasattr(column, "isna") and hasattr(column, "to_numpy"):
        return _of_series(column)
    if hasattr(column, "__arrow_c_stream__") or hasattr(column, "__arrow_c_array__"):
        pyarrow = arrow()
        return list(column.to_list()) if pyarrow is None else _of_arrow(pyarrow.chunked_array(column))
    if isinstance(column, np.ndarray | np.generic):
        return _of_array(column)
    if isinstance(column, str) or not hasattr(column, "__iter__"):
        return [column]
    # Names are kept unchanged: NumPy would turn a missing name among strings into the word nan.
    cells = list(column)
    return _of_array(np.array(cells)) if cells and all(isinstance(cell, np.generic) for cell in cells) else cells
