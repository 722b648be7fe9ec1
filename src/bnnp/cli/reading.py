"""How verbs read tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bnnp.cli.messages import note_left_out
from bnnp.tasks.source import Collection
from bnnp.tasks.tables import Table, from_table, read_table, table_pieces

READING = ("delimiter", "decimal", "drop_missing", "skip_small")
"""The options of all verbs that read tables."""


@dataclass(frozen=True)
class Reading:
    """The options about reading tables, as they were given."""

    delimiter: str | None = None
    decimal: str | None = None
    drop_missing: bool = False
    skip_small: bool = False

    def table(self, path: Path) -> Table:
        return read_table(path, delimiter=self.delimiter, decimal=self.decimal)

    def pieces(self, path: Path, rows: int) -> Iterator[Table]:
        """The table of a file, a limited number of rows at a time."""
        return table_pieces(path, rows, delimiter=self.delimiter, decimal=self.decimal)

    def complete(self, path: Path, ids: list[str], inputs: list[str], outputs: Sequence[str] = ()) -> Table:
        """The table of a file, without the rows that have no output, and those that --drop-missing leaves out."""
        whole = self.table(path)
        whole.check_columns([*ids, *inputs, *outputs])
        kept = self.kept(whole, ids, inputs, outputs)
        if len(whole) and not len(kept):
            raise ValueError(f"{whole.where}table: got an empty cell in every row, expected at least one complete row")
        note_left_out(self.left_out_of(path, outputs), rows_gone(whole, kept))
        return kept

    def kept(self, table: Table, ids: list[str], inputs: list[str], outputs: Sequence[str]) -> Table:
        """The rows of a table that these options keep; there may be none."""
        return table.filled(ids, [*inputs, *outputs]) if self.drop_missing else table.filled([], outputs)

    def left_out_of(self, path: Path, outputs: Sequence[str]) -> str:
        """What the rows are that are not kept."""
        why = "with empty cells" if self.drop_missing else f"without {' or '.join(outputs)}"
        return f"rows of {path} {why}"

    def tasks(self, path: Path, **columns: Any) -> Collection:
        """The data sets of a file, without the rows and data sets that the options leave out."""
        ids = [columns[name] for name in ("task", "role") if columns.get(name) is not None]
        rows = self.complete(path, ids, columns["x"], columns["y"])
        found = from_table(rows, **columns, small="drop" if self.skip_small else "error")
        names = [task.name for task in found.tasks]
        note_left_out("data sets with too few points", _gone(dict.fromkeys(rows.names(ids[0])), names))
        return found


def rows_gone(before: Table, after: Table) -> list[str]:
    """The numbers of the rows that are in one table alone, in words."""
    return _gone(before.rows, after.rows, "row")


def _gone(before: Any, after: Any, word: str = "") -> list[str]:
    left = set(after)
    return [f"{word} {one}".strip() for one in before if one not in left]
