"""Where a learnable prior starts, by name."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from bnnp.priors.base import Prior
from bnnp.priors.starts.fitted import fitted, floor, place, switch
from bnnp.priors.starts.spread import Deciding, Examples, spread


@dataclass(frozen=True)
class Start:
    """A way to set a prior, and what it asks of a model.

    tasks: how many of them it looks at.
    activation: of the network, where only one will do.  hidden: the least number of its hidden layers, the last of
    which has a unit for each output.  inputs: the number of its input columns, where only one will do.
    deciding: scale of what comes into the units of the last hidden layer that decide, one an output, where it is large.
    """

    set: Callable[[Prior, Examples, torch.Generator], None]
    tasks: int = 64
    activation: str | None = None
    hidden: int = 0
    inputs: int | None = None
    real_valued: bool = True
    deciding: float | None = None


SATURATED = 20.0
"""Standard deviation of what comes into a unit that decides between two levels: tanh is near -1 or 1 mostly."""


def _spread(prior: Prior, examples: Examples, generator: torch.Generator) -> None:
    spread(prior, examples.all_x(), examples.output_scale, generator)


def _switch(prior: Prior, examples: Examples, generator: torch.Generator) -> None:
    switch(prior, examples, Deciding(SATURATED, from_lowest=False), generator)


def _floor(prior: Prior, examples: Examples, generator: torch.Generator) -> None:
    floor(prior, examples, Deciding(2.0, from_lowest=True), generator)


def _leave(prior: Prior, examples: Examples, generator: torch.Generator) -> None:
    """The standard prior is where every prior is already."""


STARTS = {
    "spread": Start(_spread, real_valued=False),
    "fitted": Start(fitted, tasks=256),
    "switch": Start(_switch, tasks=256, activation="tanh", hidden=1, deciding=SATURATED),
    "floor": Start(_floor, tasks=256, activation="relu", hidden=1),
    "place": Start(place, activation="tanh", hidden=2, inputs=1),
    "standard": Start(_leave, real_valued=False),
}
"""Where a learnable prior may start, by name (`docs/training.md`)."""


def check_start(name: str, prior: Prior, *, real_valued: bool) -> None:
    """Refuse unknown starts, and those that the network or the likelihood is not made for."""
    if name not in STARTS:
        raise ValueError(f"prior_start: got {name!r}, expected one of {', '.join(STARTS)}")
    start, network = STARTS[name], prior.network
    if not start.real_valued:
        return
    activation = getattr(network, "activation", None)
    if network.mixes_points or start.activation not in (None, activation):
        wanted = "" if start.activation is None else f" with {start.activation!r}"
        raise ValueError(
            f"prior_start {name!r}: got a {type(network).__name__} with activation {activation!r}, expected a "
            f"multilayer perceptron{wanted}"
        )
    sizes = tuple(network.sizes)
    if len(sizes) - 2 < start.hidden or (start.hidden and sizes[-2] < sizes[-1]):
        raise ValueError(
            f"prior_start {name!r}: got sizes {sizes}, expected at least {start.hidden} hidden "
            f"layer{'s' if start.hidden > 1 else ''}, with a unit an output in the last"
        )
    if start.inputs not in (None, sizes[0]):
        raise ValueError(f"prior_start {name!r}: got {sizes[0]} input columns, expected {start.inputs}")
    if not real_valued:
        raise ValueError(f"prior_start {name!r}: got a likelihood of labels, expected one of real values")
