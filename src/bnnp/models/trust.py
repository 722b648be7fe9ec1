"""The record of how far a posterior is to be trusted; `bnnp.evaluation.check` fills it."""

from dataclasses import dataclass

LARGE_K, LEAST_EFFECTIVE = 0.7, 0.1
"""Weights say something if their Pareto k is not larger, and if no smaller share of the draws is effective."""
LEVEL, SLACK = 0.9, 0.05
"""The level of the intervals, and by how much their coverage may differ from it beyond two standard errors."""
RARE = 0.02
"""Known points are unlike the training tasks if fewer simulated ones are as unlikely."""


@dataclass(frozen=True)
class Trust:
    """How far a posterior is to be trusted. `str(trust)` is one line.

    Attributes:
        draws: Draws of the posterior whose importance weights were looked at.
        effective: Kish's effective number of them.
        pareto_k: The shape of the tail of the weights; above 0.7 they are dominated by a few draws.
        coverage: Share of functions drawn from the prior that lie within the 90 % intervals of their posteriors.
        coverage_error: Its standard error.
        as_unlikely: Share of simulated data sets that are at most as likely as the known points; a small one says that
            these are unlike the training tasks.
        outside: Number of inputs outside the range of training.

    Example:
        >>> trust = bnnp.evaluation.Trust(1000, 950.0, 0.2, 0.91, 0.02, as_unlikely=0.4, outside=0)
        >>> trust.trustworthy, trust.doubts
        (True, [])
    """

    draws: int
    effective: float
    pareto_k: float
    coverage: float
    coverage_error: float
    as_unlikely: float
    outside: int

    @property
    def weights_say_something(self) -> bool:
        """Whether the importance weights are so equal that they vouch for the posterior."""
        return self.pareto_k <= LARGE_K and self.effective >= LEAST_EFFECTIVE * self.draws

    @property
    def doubts(self) -> list[str]:
        """The reasons not to trust the posterior."""
        reasons = []
        if not self.weights_say_something and abs(self.coverage - LEVEL) > SLACK + 2 * self.coverage_error:
            kind = "narrow" if self.coverage < LEVEL else "wide"
            reasons.append(f"its intervals are too {kind} under its own prior: try post.refine()")
        if self.as_unlikely < RARE:
            reasons.append("the known points are unlike the training tasks")
        if self.outside:
            reasons.append("inputs outside the range of training")
        return reasons

    @property
    def trustworthy(self) -> bool:
        """Whether there is no reason for doubt."""
        return not self.doubts

    def __str__(self) -> str:
        """The verdict and what it rests on, in one line."""
        weights = f"importance weights: {self.effective:.0f} of {self.draws} effective, Pareto k {self.pareto_k:.2f}"
        use = "" if self.weights_say_something else " (they say little here: see the simulations)"
        simulated = f"simulations: 90 % intervals hold {self.coverage:.0%} ± {self.coverage_error:.0%}"
        likely = f"{self.as_unlikely:.0%} of simulated data sets are at most as likely as the known points"
        verdict = "to be trusted" if self.trustworthy else "NOT to be trusted: " + "; ".join(self.doubts)
        return f"{verdict} | {weights}{use} | {simulated} | {likely} | {self.outside} inputs out of range"
