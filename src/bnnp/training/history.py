"""What happened during training, as records one can plot and save."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bnnp._core.files import write_atomically
from bnnp._core.show import Shown

if TYPE_CHECKING:
    import pandas as pd


@dataclass(repr=False)
class History(Shown):
    """One record every few steps (means since the one before) and one an evaluation."""

    steps: list[dict[str, float]] = field(default_factory=list)
    evaluations: list[dict[str, float]] = field(default_factory=list)

    def to_frame(self) -> "pd.DataFrame":
        """A row a record: step, seconds, learning rate, objective and its terms."""
        import pandas as pd

        return pd.DataFrame(self.steps)

    def to_dict(self) -> dict[str, list[dict[str, float]]]:
        return {"steps": self.steps, "evaluations": self.evaluations}

    def save(self, path: str | Path) -> Path:
        """Write the records as JSON."""
        return write_atomically(path, json.dumps(self.to_dict(), indent=1))

    def _described(self) -> dict[str, object]:
        last = {name: f"{value:.4g}" for name, value in (self.steps[-1] if self.steps else {}).items()}
        return {**last, "evaluations": len(self.evaluations)}
