"""The starts by the names that settings, files and the command line use."""

from bnnp.priors.starts.base import Start
from bnnp.priors.starts.empirical import Empirical
from bnnp.priors.starts.spread import Spread
from bnnp.priors.starts.standard import Standard

STARTS: dict[str, Start] = {"empirical": Empirical(), "spread": Spread(), "standard": Standard()}
"""The start that each name stands for."""


def as_start(choice: Start | str) -> Start:
    """Give the start that a name stands for.

    Args:
        choice: A name, as in `bnnp.starts.STARTS`, or a start, which is returned as it is.

    Returns:
        The start.

    Raises:
        ValueError: If there is no start of that name, or if `choice` is neither a name nor a start.

    Example:
        >>> bnnp.starts.as_start("standard")
        Standard()
    """
    if isinstance(choice, Start):
        return choice
    if not isinstance(choice, str) or choice not in STARTS:
        raise ValueError(
            f"prior_start: got {choice!r}, expected one of {', '.join(STARTS)}, or an object as "
            "bnnp.starts.Spread(slope=8.0); derive your own from bnnp.starts.Start"
        )
    return STARTS[choice]
