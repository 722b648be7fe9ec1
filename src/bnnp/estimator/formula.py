"""`conc ~ time + dose | subject`: the same learner by formula."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from bnnp._core.encodings import classes_of
from bnnp.estimator.estimators import BNNPClassifier, BNNPRegressor
from bnnp.tasks.tables import Table, read_table

SHAPE = "output ~ input + input | task"
PARTS = re.compile(r"`[^`]*`|[^\s~+|`]+|[~+|`]")


@dataclass(frozen=True)
class Word:
    """A name or a sign of a formula, and where it stands."""

    text: str
    at: int

    @property
    def name(self) -> str:
        """The name without its quotation marks."""
        return self.text[1:-1] if len(self.text) > 1 and self.text[0] == "`" else self.text


def fit_table(formula: str, table: Any, **settings: Any) -> BNNPRegressor | BNNPClassifier:
    """Learn from a table by a formula, as in `conc ~ time + dose | subject`.

    Args:
        formula: The output, the inputs, and the column that names the data set of each row. A name with blanks or signs
            stands in backticks, as in `` `body weight` ``.
        table: A data frame of pandas, polars or Arrow, or the path of a file.
        **settings: Further arguments of `bnnp.BNNPRegressor`.

    Returns:
        The fitted estimator: a `bnnp.BNNPClassifier` if the output holds words, else a `bnnp.BNNPRegressor`.

    Raises:
        ValueError: If the formula is not of this shape, or the table lacks a column; the message points at the place.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"who": list("aaabbb"), "time": [0, 1, 2, 0, 1, 3], "conc": [1, 3, 2, 2, 5, 3]})
        >>> fit = bnnp.fit_table("conc ~ time | who", frame, hidden=(4,), minutes=0, random_state=0)
        >>> fit.predict(frame[["who", "time"]]).shape
        (6,)
    """
    output, inputs, task = _parsed(formula)
    whole = read_table(table)
    names = [str(name) for name in whole.frame.columns]
    seen: set[str] = set()
    for word in (output, *inputs, task):
        if word.name not in names:
            raise _error(formula, word.at, f"got {word.name!r}, expected a column: {', '.join(names)}")
        if word.name in seen:
            raise _error(formula, word.at, f"got {word.name!r} twice, expected each column once")
        seen.add(word.name)
    kind = BNNPClassifier if classes_of(whole.column(output.name)) else BNNPRegressor
    return kind(task=task.name, **settings).fit(*_parts(whole, output.name, inputs, task.name))


def _parts(whole: Table, output: str, inputs: list[Word], task: str) -> tuple[Any, Any]:
    kept = whole.complete([], [output], "drop")
    y = kept.column(output) if classes_of(kept.column(output)) else None
    x_names = [task, *(word.name for word in inputs)]
    return kept.frame[x_names], kept.numbers([output])[:, 0] if y is None else y.cells


def _parsed(formula: Any) -> tuple[Word, list[Word], Word]:
    """The output, the inputs and the task of a formula."""
    if not isinstance(formula, str):
        raise ValueError(f"formula: got {type(formula).__name__}, expected text, as in 'conc ~ time + dose | subject'")
    words = [Word(found.group(), found.start()) for found in PARTS.finditer(formula)]
    inputs: list[Word] = []
    output, rest = _name(formula, words, "an output")
    rest = _sign(formula, rest, "~")
    while not inputs or (rest and rest[0].text == "+"):
        found, rest = _name(formula, rest[1:] if inputs else rest, "an input")
        inputs.append(found)
    task, rest = _name(formula, _sign(formula, rest, "|"), "the column of tasks")
    if rest:
        raise _error(formula, rest[0].at, f"got {rest[0].text!r}, expected the end")
    return output, inputs, task


def _name(formula: str, words: list[Word], what: str) -> tuple[Word, list[Word]]:
    if not words or words[0].text in ("~", "+", "|", "`"):
        got = repr(words[0].text) if words else "the end"
        raise _error(formula, words[0].at if words else len(formula), f"got {got}, expected {what}")
    return words[0], words[1:]


def _sign(formula: str, words: list[Word], sign: str) -> list[Word]:
    if not words or words[0].text != sign:
        got = repr(words[0].text) if words else "the end"
        raise _error(formula, words[0].at if words else len(formula), f"got {got}, expected {sign!r}")
    return words[1:]


def _error(formula: str, at: int, message: str) -> ValueError:
    """An error that points into the formula."""
    return ValueError(f"formula: {message}; a formula has the shape {SHAPE!r}\n    {formula}\n    {' ' * at}^")
