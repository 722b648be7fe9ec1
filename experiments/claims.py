"""Statements of the paper as claims about records, each with what the records say of it.

A claim is a difference with a standard error: positive where the paper is right. The verdict follows from that alone,
so that no statement can stand in `RESULTS.md` that the records contradict.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from score_tables import Estimate, over

REAL = 2.0
"""A difference of so many standard errors counts."""
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
    doubts: str = ""

    def verdict(self) -> str:
        """Whether the claim holds, in words."""
        mean, error = self.gain
        if math.isnan(mean):
            return NOT_RUN
        if self.doubts or self.seeds < 2 or math.isnan(error) or abs(mean) <= REAL * error:
            return UNKNOWN
        return HOLDS if mean > 0 else FAILS


def difference(larger: Estimate, smaller: Estimate) -> Estimate:
    """Of two independent estimates."""
    return larger[0] - smaller[0], math.hypot(larger[1], smaller[1])


def paired(larger: Sequence[float], smaller: Sequence[float]) -> Estimate:
    """The mean difference of repeats that belong together, as of the same seed and tests, with its standard error."""
    return over([a - b for a, b in zip(larger, smaller, strict=True)])


def worst(gains: Sequence[Estimate]) -> Estimate:
    """The least certain of several gains that a claim needs all of, by standard errors."""
    return min(gains, key=lambda gain: gain[0] / max(gain[1], 1e-12)) if gains else (math.nan, math.nan)
