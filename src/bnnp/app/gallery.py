"""What the page can show: models, and data sets to show them on."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from bnnp.evaluation import Oracle
from bnnp.inference import METHODS
from bnnp.likelihoods.categorical import Categorical
from bnnp.models.amortised import AmortisedModel
from bnnp.models.sums import can_be_cut
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.synthetic import Synthetic
from bnnp.tasks.task import Task

REACH = 2.0
"""Without data sets, the page shows inputs and outputs within this many of the model's own units."""
INPUTS_OF_FUNCTION = 401
"""Inputs at which a true function is drawn."""
NAMES_AT_MOST = 1000
"""Names of data sets that the page lists; others are found by their number."""


@dataclass(frozen=True, eq=False)
class Gallery:
    """Models, and where their data sets come from.

    Args:
        models: Models by name. All have the same columns.
        tasks: A user's table, a source of drawn data sets, or None.

    Raises:
        ValueError: If there is no model, one has no prior over weights, or columns differ.

    Example:
        >>> from bnnp.app import Gallery
        >>> Gallery({"small": model}).describe()["models"][0]["name"]
        'small'
    """

    models: Mapping[str, AmortisedModel]
    tasks: TaskSource | None = None

    def __post_init__(self):
        if not self.models:
            raise ValueError("models: got none, expected at least one")
        sizes = {}
        for name, model in self.models.items():
            if not isinstance(model, AmortisedModel):
                kind = type(model).__name__
                raise ValueError(f"{name}: got a {kind}, which has no prior over weights; give a BNNP, AttBNNP or BNAM")
            sizes[name] = (model.in_size, model.y_size, type(model.likelihood))
        if len(set(sizes.values())) > 1:
            raise ValueError(
                f"models: got {', '.join(self.models)} with different inputs, outputs or likelihoods, expected models "
                "of the same columns; show them one by one"
            )
        if self.tasks is not None and (self.tasks.in_size, self.tasks.out_size) != next(iter(sizes.values()))[:2]:
            raise ValueError(
                f"tasks: got {self.tasks.in_size} inputs and {self.tasks.out_size} outputs, expected those of the "
                f"model: {next(iter(sizes.values()))[:2]}"
            )

    def model(self, number: int, *, standard: bool = False) -> AmortisedModel:
        """A model by its number; with `standard`, the same network under the prior that training starts from."""
        return (self._standard if standard else list(self.models.values()))[number]

    @cached_property
    def _standard(self) -> list[AmortisedModel]:
        return [with_standard_prior(model) for model in self.models.values()]

    @cached_property
    def oracle(self) -> Oracle | None:
        """The exact posterior, where the source of data sets knows it."""
        return Oracle(self.tasks) if hasattr(self.tasks, "oracle") else None  # pyright: ignore[reportArgumentType]

    def subject(self, number: int) -> Task:
        """A data set by its number; of a source without an end, the one that is drawn with this seed."""
        if self.tasks is None:
            raise ValueError("subject: there are no data sets; start the page with --table or --source")
        if isinstance(self.tasks, Collection):
            return self.tasks[number % len(self.tasks)]
        if isinstance(self.tasks, Synthetic):
            return self._drawn(self.tasks, number)[0]
        return self.tasks.drawn(1, torch.Generator().manual_seed(number))[0]

    def function(self, number: int) -> dict[str, list[float]] | None:
        """The true function of a data set, as inputs and values, where the source knows it."""
        if not isinstance(self.tasks, Synthetic):
            return None
        return {"x": self._line(self.tasks).tolist(), "y": self._drawn(self.tasks, number)[1].flatten().tolist()}

    def _drawn(self, source: Synthetic, number: int) -> tuple[Task, torch.Tensor]:
        return source.draw_with_function(torch.Generator().manual_seed(number), self._line(source)[:, None])

    def _line(self, source: Synthetic) -> torch.Tensor:
        return torch.linspace(source.low, source.high, INPUTS_OF_FUNCTION, dtype=torch.float64)

    def describe(self) -> dict[str, Any]:
        """All that the page must know before its first picture, as plain values."""
        return {
            "models": [_described(name, model) for name, model in self.models.items()],
            "inputs": self._ranges("x"),
            "outputs": self._ranges("y"),
            "classes": _classes(self.model(0)),
            "real": self.model(0).likelihood.real_valued,
            "methods": list(METHODS),
            "subjects": self._subjects(),
            "oracle": self.oracle is not None,
        }

    def _subjects(self) -> dict[str, Any] | None:
        if self.tasks is None:
            return None
        if not isinstance(self.tasks, Collection):
            return {"count": None, "names": []}
        return {"count": len(self.tasks), "names": [task.name for task in self.tasks.tasks[:NAMES_AT_MOST]]}

    def _ranges(self, role: str) -> list[dict[str, Any]]:
        """Name and range of every column: of the data sets, else about that of training."""
        columns = self.model(0).columns
        names, shift, scale = (getattr(columns, f"{role}_{part}") for part in ("names", "shift", "scale"))
        seen = [] if self.tasks is None else [self.subject(number) for number in range(self._looked_at())]
        if seen:
            values = torch.cat([getattr(task, role) for task in seen])
            low, high = values.min(0).values.tolist(), values.max(0).values.tolist()
        else:
            low, high = ((shift + side * REACH * scale).tolist() for side in (-1, 1))
        return [{"name": name, "low": a, "high": b} for name, a, b in zip(names, low, high, strict=False)]

    def _looked_at(self) -> int:
        return len(self.tasks) if isinstance(self.tasks, Collection) and len(self.tasks) < NAMES_AT_MOST else 32


def with_standard_prior(model: AmortisedModel) -> AmortisedModel:
    """The same model under the standard prior. Its inference networks do not belong to that prior: do not use them."""
    standard = copy.deepcopy(model)
    prior = type(model.prior)(model.network).to(model.dtype)
    prior.view = model.prior.view
    standard.prior = prior
    return standard


def _described(name: str, model: AmortisedModel) -> dict[str, Any]:
    return {
        "name": name,
        "sizes": list(model.network.sizes),
        "share": model.prior.learnability,
        "updates": can_be_cut(model),
        "summary": " · ".join(_facts(model)),
    }


def _facts(model: AmortisedModel) -> Sequence[str]:
    facts = [type(model).__name__, " - ".join(map(str, model.network.sizes)), f"{type(model.prior).__name__} prior"]
    return [*facts, f"learnable share {model.prior.learnability:g}"]


def _classes(model: AmortisedModel) -> int:
    """Number of classes; 0 where outputs are not classes."""
    return model.likelihood.num_classes if isinstance(model.likelihood, Categorical) else 0
