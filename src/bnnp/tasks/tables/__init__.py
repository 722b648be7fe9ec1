"""A user's tables: read, checked, turned into tasks, and written."""

from bnnp.tasks.tables.long import from_table, outputs_of
from bnnp.tasks.tables.table import Table, column_types, has_more_rows, read_table, table_pieces
from bnnp.tasks.tables.writing import check_out, table_writer, write_table

__all__ = [
    "Table",
    "check_out",
    "column_types",
    "from_table",
    "has_more_rows",
    "outputs_of",
    "read_table",
    "table_pieces",
    "table_writer",
    "write_table",
]
