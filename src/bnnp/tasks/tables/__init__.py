"""A user's tables: read, checked, turned into tasks, and written."""

from bnnp.tasks.tables.long import from_table, outputs_of
from bnnp.tasks.tables.table import Table, read_table
from bnnp.tasks.tables.writing import check_out, write_table

__all__ = ["Table", "check_out", "from_table", "outputs_of", "read_table", "write_table"]
