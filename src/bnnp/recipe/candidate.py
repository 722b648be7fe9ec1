"""A model on its way through the rounds of training, and what is said of it."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bnnp.models.base import MetaLearner
from bnnp.priors.learnable import GaussianUnits
from bnnp.recipe.judging import Judgement
from bnnp.training.history import History

STARTED = {
    "empirical": "The prior starts where the data sets suggest in closed form.",
    "warped": "The prior starts in closed form, with random functions that hidden units flatten to levels or a floor.",
}
"""What is said of each start."""
NOT_WARPED = "The network with tanh units was not tried: the outputs show no levels, floor or ceiling."


@dataclass(frozen=True)
class Candidate:
    """A model on its way, with what is known of it.

    Attributes:
        number: Its place among the models that are tried.
        model: The model.
        start: The name of the start of its prior.
        first: How well left-out tasks are predicted at the start.
        scores: How well they are predicted now.
        parts: The parts of the training that have not ended.
        history: The records of its training.
        rounds: The steps of each round that helped, for each part.
        ended: Why each part ended, one sentence each.
        interrupted: Whether Ctrl-C stopped it.
    """

    number: int
    model: MetaLearner
    start: str
    first: Judgement
    scores: Judgement
    parts: tuple[str, ...]
    history: History = field(default_factory=History)
    rounds: dict[str, tuple[int, ...]] = field(default_factory=dict)
    ended: tuple[str, ...] = ()
    interrupted: bool = False

    def take(self, model: MetaLearner) -> "Candidate":
        """Give a model the state of this one."""
        for own, other in zip(_units(model), _units(self.model), strict=True):
            own.basis, own.offset = copy.deepcopy((other.basis, other.offset))
        model.columns.take_record(self.model.columns.record())
        model.load_state_dict(self.model.state_dict())
        return self

    def without(self, ended: str) -> "Candidate":
        """The same, with one part of the training less, and why it ended."""
        return replace(self, parts=self.parts[1:], ended=(*self.ended, ended))

    def decisions(self, left_out: int) -> list[str]:
        """What was decided, in sentences, given how many tasks were left out."""
        now, before = self.scores.known["marginal_lppd"], self.first.known["marginal_lppd"]
        return [
            STARTED[self.start],
            *self.ended,
            f"On {left_out} data sets that it did not learn from, the log-density per point is "
            f"{now:.3f}; at the start it was {before:.3f}.",
        ]


def chosen(best: Candidate, candidates: Sequence[Candidate]) -> str:
    """Which network was chosen and why, in a sentence."""
    names = [str(candidate.model.config().get("activation")) for candidate in candidates]
    values = [candidate.scores.worth() for candidate in candidates]
    scores = ", ".join(f"{value:.3f} with {name}" for name, value in zip(names, values, strict=True))
    return (
        f"The network has {names[candidates.index(best)]} units: after at most two rounds, the log-density per point "
        f"of left-out data sets, averaged over predictions with and without known points, is {scores}."
    )


def in_rounds(count: int) -> str:
    """A number of rounds, in words."""
    return "1 round" if count == 1 else f"{count} rounds"


def _units(model: MetaLearner) -> list[GaussianUnits]:
    return [module for module in model.modules() if isinstance(module, GaussianUnits)]
