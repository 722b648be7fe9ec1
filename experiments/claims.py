"""Statements of the paper as claims about records, each with what the records say of it.

A claim is a difference with a standard error: positive where the paper is right. The verdict follows from that alone,
so that no statement can stand in `RESULTS.md` that the records contradict. Standard errors of few repeats are uncertain
themselves, so that how many of them count is Student's: 12.7 with two repeats, 3.2 with four, 2 with many.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import t

from score_tables import Estimate, over

SURE = 0.95
"""A difference counts if an interval of this confidence around it leaves out 0."""
FLAGGED = 2
"""Of the data sets of a row of Markov chains, at most so many may have a warning."""
RISING, BEYOND = 1.0, 2.0
"""A bound that rises by more nats in a thousand steps, beyond so many standard errors, has not arrived."""
HOLDS, FAILS, UNKNOWN, NOT_RUN = "holds", "does not hold", "cannot tell", "not run"


@dataclass(frozen=True)
class Claim:
    """A claim and what was found.

    Attributes:
        where: The section of the paper.
        text: What is claimed.
        paper: The paper's numbers, if it has any.
        ours: Our numbers.
        oracle: The best possible, if it is known.
        trivial: The best of what needs no learning.
        gain: How much ours differ in the direction that is claimed; not a number where it was not run.
        seeds: Repeats behind the standard error of the gain.
        picked: Of how many differences this one was picked because it speaks most for the verdict.
        doubts: Why the numbers may be wrong, as chains that have not mixed; with a doubt no claim holds or fails.
    """

    where: str
    text: str
    paper: str = ""
    ours: str = ""
    oracle: str = ""
    trivial: str = ""
    gain: Estimate = (math.nan, math.nan)
    seeds: int = 0
    picked: int = 1
    doubts: str = ""

    def verdict(self) -> str:
        """Whether the claim holds, in words."""
        mean, error = self.gain
        if math.isnan(mean):
            return NOT_RUN
        if self.doubts or math.isnan(error) or not abs(mean) > needed(self.seeds, self.picked) * error:
            return UNKNOWN
        return HOLDS if mean > 0 else FAILS


def needed(repeats: int, picked: int = 1) -> float:
    """The standard errors from which a difference counts, by Student's distribution; endless for a single repeat.

    The largest of several differences is large by chance more often than one is: the share of errors that is allowed
    is divided by their number (`picked`).
    """
    return float(t.ppf(1 - (1 - SURE) / 2 / picked, repeats - 1)) if repeats > 1 else math.inf


def has_arrived(convergence: Mapping[str, Any]) -> bool:
    """Whether an inference can be taken for what the method gives: few data sets are flagged, no bound still rises."""
    slope, error = convergence["slope"], convergence["slope_error"]
    rises = slope is not None and slope - BEYOND * error > RISING
    return not rises and (convergence["rhat"] is None or convergence["doubtful"] <= FLAGGED)


def difference(larger: Estimate, smaller: Estimate) -> Estimate:
    """Of two independent estimates."""
    return larger[0] - smaller[0], math.hypot(larger[1], smaller[1])


def paired(larger: Sequence[float], smaller: Sequence[float]) -> Estimate:
    """The mean difference of repeats that belong together, as of the same seed and tests, with its standard error."""
    return over([a - b for a, b in zip(larger, smaller, strict=True)])


def worst(gains: Sequence[Estimate]) -> Estimate:
    """The least certain of several gains that a claim needs all of, by standard errors.

    If it is below 0, it was picked of them all; if it is above, all others are so too, and nothing was picked.
    """
    return min(gains, key=lambda gain: gain[0] / max(gain[1], 1e-12)) if gains else (math.nan, math.nan)
