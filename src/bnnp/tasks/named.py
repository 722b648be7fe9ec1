"""What sources of tasks with named columns share."""

from collections.abc import Sequence


class NamedColumns:
    """The numbers of input and output columns, for a class that has their names."""

    x_names: tuple[str, ...]
    y_names: tuple[str, ...]

    @property
    def in_size(self) -> int:
        """Number of input columns."""
        return len(self.x_names)

    @property
    def out_size(self) -> int:
        """Number of output columns."""
        return len(self.y_names)


def names_of(columns: str | Sequence[str], which: str) -> list[str]:
    """The names of columns that a user gave, one or several.

    Args:
        columns: What the user gave.
        which: The argument's name, for the error.

    Raises:
        ValueError: If these are no names, or none.
    """
    if columns is not None and not isinstance(columns, str | Sequence):
        raise ValueError(f"{which}: got {columns!r}, expected names of columns, as in ['time', 'dose']")
    names = [columns] if isinstance(columns, str) else list(columns or ())
    if not names:
        raise ValueError("x and y: got no columns, expected at least one of each")
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"{which}: got {names!r}, expected names of columns, as in ['time', 'dose']")
    return names
