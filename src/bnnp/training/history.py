"""The history of a training run, as records to plot and save."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bnnp._core.files import write_atomically
from bnnp._core.show import Shown

if TYPE_CHECKING:
    import pandas as pd

FALLBACKS = ("float64", "whitened")
"""Columns of the history that count steps with a numerical fallback: an update that had to be done again in float64,
and one in whitened space, for a prior that is close to singular."""


@dataclass(repr=False)
class History(Shown):
    """What training has recorded.

    Attributes:
        steps: One record every few steps: `step`, `seconds`, `learning_rate`, the means of the objective and its terms
            since the record before, and how many of these steps had a numerical fallback (`float64`, `whitened`).
        evaluations: One record per evaluation: `step`, `seconds`, and what the evaluation returned.

    Example:
        >>> model = bnnp.BNNP(in_size=1, out_size=1, hidden=(8, 8), likelihood=bnnp.Gaussian(0.1))
        >>> settings = bnnp.FitSettings(record_every=2)
        >>> history = bnnp.fit(model, tasks, steps=3, settings=settings, progress=False).history
        >>> history.to_frame()["step"].tolist()
        [2, 3]
        >>> sorted(history.steps[0])
        ['float64', 'kl', 'learning_rate', 'likelihood', 'objective', 'predictive', 'seconds', 'step', 'whitened']
    """

    steps: list[dict[str, float]] = field(default_factory=list)
    evaluations: list[dict[str, float]] = field(default_factory=list)

    def to_frame(self) -> "pd.DataFrame":
        """The records of steps as a table with one row per record."""
        import pandas as pd  # slow to import, and few need it

        return pd.DataFrame(self.steps)

    def to_dict(self) -> dict[str, list[dict[str, float]]]:
        """All records as plain lists."""
        return {"steps": self.steps, "evaluations": self.evaluations}

    def save(self, path: str | Path) -> Path:
        """Write the records as JSON.

        Returns:
            The path of the file.
        """
        return write_atomically(path, json.dumps(self.to_dict(), indent=1))

    def fallback_shares(self) -> dict[str, float]:
        """The share of recorded steps that had a numerical fallback, by its kind.

        Example:
            >>> history = bnnp.History(steps=[{"step": 50, "float64": 1, "whitened": 0}])
            >>> history.fallback_shares()
            {'float64': 0.02, 'whitened': 0.0}
        """
        steps = max(1, int(self.steps[-1]["step"])) if self.steps else 1
        return {kind: sum(record.get(kind, 0) for record in self.steps) / steps for kind in FALLBACKS}

    def add_steps(self, step: int, seconds: float, rate: float, recent: Sequence[Mapping[str, float]]) -> None:
        """Add a record of the steps since the last one.

        Args:
            step: Number of steps done.
            seconds: Time that all steps took.
            rate: Learning rate of the last step.
            recent: One entry per step: the terms of the objective, and whether the step had fallbacks.
        """
        terms = [name for name in recent[-1] if name not in FALLBACKS]
        means = {name: sum(one[name] for one in recent) / len(recent) for name in terms}
        counts = {kind: sum(int(one.get(kind, 0)) for one in recent) for kind in FALLBACKS}
        self.steps.append({"step": step, "seconds": seconds, "learning_rate": rate, **means, **counts})

    def add_evaluation(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """Add a record of what an evaluation returned.

        Args:
            step: Number of steps done.
            seconds: Time that these steps took.
            values: Numbers by name.

        Raises:
            ValueError: If these are none: the function is the user's own.
        """
        try:
            numbers = {name: float(value) for name, value in values.items()}
        except (AttributeError, TypeError, ValueError):
            raise ValueError(f"evaluation: got {values!r}, expected a dict of numbers by name") from None
        self.evaluations.append({"step": step, "seconds": seconds, **numbers})

    def _described(self) -> dict[str, object]:
        shown = {name: value for name, value in (self.steps[-1] if self.steps else {}).items() if name not in FALLBACKS}
        last = {name: f"{value:.4g}" for name, value in shown.items()}
        return {**last, "evaluations": len(self.evaluations)}
