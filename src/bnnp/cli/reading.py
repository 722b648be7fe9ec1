"""How verbs read tables."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bnnp._core.columns import Columns
from bnnp.cli.messages import note_left_out
from bnnp.tasks.source import Collection
from bnnp.tasks.tables import Table, from_table, read_table

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

    def complete(self, path: Path, ids: list[str], numbers: list[str]) -> Table:
        """The table of a file, without the rows that --drop-missing leaves out."""
        whole = self.table(path)
        kept = whole.complete(ids, numbers, "drop" if self.drop_missing else "error")
        note_left_out(f"rows of {path} with empty cells", _gone(whole.rows, kept.rows, "row"))
        return kept

    def tasks(self, path: Path, **columns: Any) -> Collection:
        """The data sets of a file, without the rows and data sets that the options leave out."""
        ids = [columns[name] for name in ("task", "role") if columns.get(name) is not None]
        rows = self.complete(path, ids, [*columns["x"], *columns["y"]])
        found = from_table(rows, **columns, small="drop" if self.skip_small else "error")
        names = [task.name for task in found.tasks]
        note_left_out("data sets with too few points", _gone(dict.fromkeys(rows.names(ids[0])), names))
        return found


def checked_numbers(table: Table, names: list[str], columns: Columns, which: str) -> Any:
    """Columns of numbers that the model can hold.

    Args:
        table: The table.
        names: The columns.
        columns: The model's columns.
        which: "x" or "y".
    """
    numbers = table.numbers(names)
    columns.check_size(torch.from_numpy(numbers), which, table.where.removesuffix(": "), table.rows.tolist())
    return numbers


def _gone(before: Any, after: Any, word: str = "") -> list[str]:
    left = set(after)
    return [f"{word} {one}".strip() for one in before if one not in left]
