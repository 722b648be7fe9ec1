"""What `bnnp predict` and `bnnp infer` say of their questions on standard error, before they answer them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bnnp._core.columns import Columns
from bnnp._core.show import Few
from bnnp.cli.messages import note_left_out, say
from bnnp.questions import OUTSIDE, Questions


@dataclass
class Tally:
    """Counts over all questions.

    Attributes:
        columns: The model's columns.
        subjects: Data sets that are asked for.
        without: Those without known points.
        others: Data sets with known points that are not asked for.
        points: Known points.
        used: Those of data sets that are asked for.
        targets: Inputs to predict at.
        strange: Those with a cell that training did not have.
        outside: Those outside the range of the training inputs.
    """

    columns: Columns
    subjects: int = 0
    without: Few = field(default_factory=Few)
    others: Few = field(default_factory=Few)
    points: int = 0
    used: int = 0
    targets: int = 0
    strange: int = 0
    outside: int = 0

    @staticmethod
    def of(columns: Columns, pieces: Iterable[Questions]) -> Tally:
        """Count what pieces of the questions hold."""
        found = Tally(columns)
        for piece in pieces:
            found.subjects += len(piece.asked)
            found.without.add([question.name for question in piece.asked if len(question.x) == 0])
            found.others.add(piece.others.first, piece.others.count)
            found.points += piece.points
            found.used += sum(len(question.x) for question in piece.asked)
            found.targets += len(piece.targets)
            found.strange += sum(int(question.strange.sum()) for question in piece.asked)
            if columns.ranges is not None:
                found.outside += sum(int(piece.outside(question).sum()) for question in piece.asked)
        return found

    def report(self, column: str | None, context: Path, targets: Path, *, known_only: bool) -> None:
        """Say which data sets have known points, and which inputs are unlike those of training.

        Args:
            column: The column that tells data sets apart.
            context: The file of known points.
            targets: The file of inputs to predict at.
            known_only: Whether data sets without known points are left out.

        Raises:
            ValueError: If there are no targets or no known points, or no data set of one table is in the other.
        """
        if not self.targets:
            raise ValueError(f"{targets}: got no rows, expected inputs to predict at")
        if not self.points:
            raise ValueError(
                f"{context}: got no known point, expected at least one row; bnnp sample MODEL --at {targets} draws "
                "functions of the prior, which needs none"
            )
        if not self.used:
            raise ValueError(
                f"column {column!r}: got {self.without} in {targets} and {self.others} in {context}, expected a name "
                "that is in both, as it is written"
            )
        if column is not None:
            prior = f" (predicted from the prior: {self.without})" if self.without.count else ""
            say(
                f"subjects by {column!r}: {self.subjects} asked for, {self.subjects - self.without.count} with known "
                f"points, {self.without.count} without{prior}"
            )
        say(f"known points: {self.used} used, {self.points - self.used} not used")
        self._report_inputs()
        if known_only and self.subjects == self.without.count:
            raise ValueError("--skip-small: no data set has known points, expected at least one")
        if known_only:
            note_left_out("subjects without known points", self.without)

    def _report_inputs(self) -> None:
        if self.strange:
            say(
                f"warning: {self.strange} of {self.targets} targets have an empty cell or a category that training did "
                "not have; the mean of training is taken for it"
            )
        if self.columns.ranges is None:
            say("note: the model's file does not say which range its training inputs had")
        elif self.outside:
            say(
                f"warning: {self.outside} of {self.targets} targets are outside the range of the training inputs "
                f"({self.columns.ranges.of_inputs(self.columns.x_names)}); predictions there may be wrong however "
                f"small their std is: see the column {OUTSIDE}"
            )
