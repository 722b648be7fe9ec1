"""How an object is displayed: a few lines of text, or a small table in a notebook."""

import html
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

ONE_LINE = 100
"""Characters up to which an object is shown in one line."""
LONGEST = 80
"""Characters of a value, beyond which it is cut."""


class Shown:
    """A class whose objects display the names and values that `_described` returns. Dataclasses need `repr=False`."""

    def _described(self) -> dict[str, object]:
        raise NotImplementedError(f"{type(self).__name__} does not say what it shows")

    def __repr__(self) -> str:
        return as_text(type(self).__name__, self._described())

    def _repr_html_(self) -> str:
        return as_html(type(self).__name__, self._described())


def as_text(title: str, rows: Mapping[str, object]) -> str:
    """`title(name: value, ...)` in one line where that is short, else one line per name."""
    shown = {name: _short(value) for name, value in rows.items()}
    line = f"{title}({', '.join(f'{name}: {value}' for name, value in shown.items())})"
    if len(line) <= ONE_LINE:
        return line
    width = max(len(name) for name in shown)
    return "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in shown.items())])


def as_html(title: str, rows: Mapping[str, object]) -> str:
    """A table of two columns. Everything is escaped, since names of columns and tasks come from the user."""
    lines = [
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(_short(value))}</td></tr>" for name, value in rows.items()
    ]
    return f"<table><caption>{html.escape(title)}</caption>{''.join(lines)}</table>"


FEW = 6
"""Names that are shown of many."""


@dataclass
class Few:
    """Names of which the first few are kept, and how many there were."""

    first: list[str] = field(default_factory=list)
    count: int = 0

    @staticmethod
    def of(names: Sequence[str]) -> "Few":
        """The first of some names."""
        return Few(list(names[:FEW]), len(names))

    def add(self, names: Sequence[str], count: int | None = None) -> None:
        """Add names, or `count` of them where only the first are given."""
        self.first += list(names[: FEW - len(self.first)])
        self.count += len(names) if count is None else count

    def __str__(self) -> str:
        few = ", ".join(self.first)
        return few if self.count <= FEW else f"{few}, ... ({self.count} in all)"


def listed(names: Sequence[str]) -> str:
    """Names in one line; if there are more than six, the first six and the number of all."""
    return str(Few.of(names))


def span(values: Iterable[float]) -> str:
    """The smallest and the largest of some numbers; a single number if they are equal."""
    all_of_them = list(values)
    if not all_of_them:
        return "none"
    low, high = f"{min(all_of_them):.4g}", f"{max(all_of_them):.4g}"
    return low if low == high else f"{low} to {high}"


def _short(value: object) -> str:
    return textwrap.shorten(str(value), LONGEST, placeholder=" ...")
