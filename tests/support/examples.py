"""The examples in docstrings, and the names that they may take for granted."""

import doctest
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

import bnnp

MODULES = ("tasks", "priors", "starts", "objectives", "inference", "neural_processes", "evaluation", "plots")
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public_objects() -> Iterator[tuple[str, Any]]:
    """Every public class and function by its full name, each once, under the shortest name that it has."""
    seen: set[int] = set()
    for place, module in [("bnnp", bnnp), *((f"bnnp.{name}", getattr(bnnp, name)) for name in MODULES)]:
        for name in module.__all__:
            thing = getattr(module, name)
            if (inspect.isclass(thing) or inspect.isroutine(thing)) and id(thing) not in seen:
                seen.add(id(thing))
                yield f"{place}.{name}", thing


def namespace() -> dict[str, Any]:
    """Names that every example knows: `bnnp`, `np`, a small collection of tasks, a small model, its posterior, data."""
    generator = np.random.default_rng(0)
    data = [(x, np.sin(2 * x) + 0.1 * generator.normal(size=x.shape)) for x in generator.normal(size=(6, 8, 1))]
    model = bnnp.BNNP(in_size=1, out_size=1, hidden=(8, 8), likelihood=bnnp.Gaussian(0.1), seed=0)
    x, y = np.array([[-1.0], [0.0], [1.0]]), np.array([[-0.9], [0.0], [0.9]])
    return {
        "bnnp": bnnp,
        "np": np,
        "tasks": bnnp.tasks.from_arrays(data),
        "model": model,
        "x": x,
        "y": y,
        "x_new": np.array([[0.5], [2.0]]),
        "post": model.condition(x, y, num_samples=20, seed=0),
    }


def failures(name: str, thing: Any, names: dict[str, Any]) -> tuple[int, str, list[Any]]:
    """How many examples the docstring of a thing has, what goes wrong in them, and the objects that they make."""
    parser, printed = doctest.DocTestParser(), []
    test = parser.get_doctest(inspect.getdoc(thing) or "", dict(names), name, None, None)
    doctest.DocTestRunner(optionflags=OPTIONS, verbose=False).run(test, out=printed.append, clear_globs=False)
    return len(test.examples), "".join(printed), list(test.globs.values())
