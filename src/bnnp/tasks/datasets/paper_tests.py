"""The paper's fixed test sets that ship with the package."""

from importlib.resources import files

from bnnp.tasks.source import Collection
from bnnp.tasks.tables import from_table
from bnnp.tasks.task import Task

_FOLDER = files("bnnp.data.paper_tests")


def sawtooth_tests() -> Collection:
    """The 16 sawtooth sets of the paper's section 4.3: 50 points each, noise 0.05, fixed contexts and targets.

    Returns:
        The tasks, with their splits.

    Example:
        >>> tests = bnnp.tasks.sawtooth_tests()
        >>> len(tests), len(tests.splits), len(tests[0])
        (16, 16, 50)
    """
    import pandas as pd

    with (_FOLDER / "sawtooth.csv").open() as file:
        table = pd.read_csv(file)
    return from_table(table, task="task", x=["x"], y=["y"], role="role", standardise=False)


def posterior_quality_test() -> Task:
    """The data set of the paper's section 4.1: 25 points of a [1, 20, 20, 1] network, noise 0.1.

    Returns:
        The task.

    Example:
        >>> bnnp.tasks.posterior_quality_test()
        Task(name: 'posterior_quality', points: 25, inputs: 1, outputs: 1)
    """
    import pandas as pd

    with (_FOLDER / "posterior_quality.csv").open() as file:
        table = pd.read_csv(file)
    return Task.of(table[["x"]], table[["y"]], "posterior_quality")
