"""What sources of tasks with named columns share."""


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
