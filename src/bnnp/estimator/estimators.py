"""The estimators of scikit-learn's kind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets

from bnnp.estimator.base import Answer, TableLearner, in_rows
from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.categorical import Categorical
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.prediction.base import checked_levels
from bnnp.tasks.source import Collection

NOISE = 0.1
"""First guess of the noise, in standardised units of the outputs."""


class BNNPRegressor(RegressorMixin, TableLearner):
    """Regression of related data sets, such as the subjects of a trial: an estimator of scikit-learn's kind.

    `fit` learns a prior over the weights of a neural network from all data sets of a table, and keeps their points;
    `observe` takes in the known points of new data sets; `predict` predicts each data set from its own known points, or
    from the prior if it has none. Frames of pandas, polars and Arrow are welcome, with categories, dates and empty
    cells, and NumPy arrays.

    Args:
        task: The column that names the data set of each row, or its place in an array. If None, all rows are one data
            set: with one input under the prior that is named by `prior`, with several under one that starts from them.
        hidden: Units of the hidden layers.
        prior: A prior that ships with the package, for one data set of one input.
        minutes: Time after which no new round of training begins. With 0 nothing is trained: the prior is a random
            network whose features are spread over the inputs.
        num_samples: Weight samples per data set; by default as many as predictions need.
        random_state: Seed of everything random.

    Attributes:
        model_: The model, as `bnnp.learn` gives it.
        known_: The known points of every data set by name, as numbers.
        decisions_: What was decided in training and why.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"who": list("aaabbb"), "time": [0, 1, 2, 0, 1, 3], "conc": [1, 3, 2, 2, 5, 3]})
        >>> reg = bnnp.BNNPRegressor(task="who", hidden=(4,), minutes=0, random_state=0)
        >>> reg = reg.fit(frame[["who", "time"]], frame["conc"])
        >>> new = pd.DataFrame({"who": ["a", "c"], "time": [1.5, 1.5]})
        >>> reg.predict_frame(new, quantiles=[0.1, 0.9]).columns.tolist()
        ['who', 'time', 'mean', 'std', 'q10', 'q90', 'from_prior', 'outside_training']
        >>> mean, std = reg.predict(new, return_std=True)
        >>> bool(std[0] < std[1])  # nothing is known of c
        True
    """

    def fit(self, X: Any, y: Any) -> BNNPRegressor:  # noqa: N803
        """Learn a prior from all data sets, and keep their points.

        Args:
            X: Inputs with the column of tasks.
            y: Outputs, one per row; rows without one are left out, with a warning.

        Returns:
            The estimator.

        Raises:
            ValueError: If these are not data that can be learned from.
        """
        self._fit(X, y)
        return self

    def predict(self, X: Any, return_std: bool = False, quantiles: Sequence[float] | None = None) -> Any:  # noqa: N803
        """Predict new observations.

        Args:
            X: Inputs with the column of tasks, as in `fit`.
            return_std: Whether to give the standard deviation of a new observation too.
            quantiles: Levels of quantiles of a new observation to give too.

        Returns:
            The means (rows,); with `return_std` or `quantiles` a tuple of these, the standard deviations (rows,) and
            the quantiles (rows, levels), as far as they were asked for.

        Raises:
            ValueError: If the data are not of the kind that `fit` had.
        """
        answers = self._answers(X)
        found = [in_rows(answers, lambda one: one.predictive.mean[:, 0])]
        if return_std:
            found.append(in_rows(answers, lambda one: one.predictive.std[:, 0]))
        if quantiles is not None:
            levels = checked_levels(quantiles).reshape(-1).tolist()
            found.append(in_rows(answers, lambda one: one.predictive.quantile(levels)[..., 0].T))
        return found[0] if len(found) == 1 else tuple(found)

    def _columns(self, answers: Sequence[Answer], quantiles: Sequence[float]) -> dict[str, Any]:
        def quantile(level: float, one: Answer) -> np.ndarray:
            return one.predictive.quantile(level)[:, 0]

        levels = {f"q{100 * level:02.4g}": partial(quantile, level) for level in quantiles}
        return {
            "mean": lambda one: one.predictive.mean[:, 0],
            "std": lambda one: one.predictive.std[:, 0],
            **levels,
        }

    def _likelihood(self, tasks: Collection) -> tuple[Likelihood, int]:
        if tasks.has_labels:
            raise ValueError(f"y: got {tasks.encodings.classes[0]!r}, expected numbers; use bnnp.BNNPClassifier")  # pyright: ignore
        return Gaussian(NOISE), 1


class BNNPClassifier(ClassifierMixin, TableLearner):
    """Classification of related data sets: an estimator of scikit-learn's kind.

    It works as `bnnp.BNNPRegressor` does and takes the same arguments, but for `prior`, which has no effect here.

    Args:
        task: The column that names the data set of each row, or its place in an array; None for one data set.
        hidden: Units of the hidden layers.
        prior: No effect.
        minutes: Time after which no new round of training begins; with 0 nothing is trained.
        num_samples: Weight samples per data set.
        random_state: Seed of everything random.

    Attributes:
        classes_: The labels.
        model_: The model.
        known_: The known points of every data set by name, as numbers.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"who": list("aaaabbbb"), "dose": [0, 1, 2, 3] * 2, "ill": list("nnyynnny")})
        >>> cla = bnnp.BNNPClassifier(task="who", hidden=(4,), minutes=0, num_samples=20, random_state=0)
        >>> cla = cla.fit(frame[["who", "dose"]], frame["ill"])
        >>> cla.classes_.tolist(), cla.predict_proba(frame[["who", "dose"]]).shape
        (['n', 'y'], (8, 2))
    """

    _classes = True

    def fit(self, X: Any, y: Any) -> BNNPClassifier:  # noqa: N803
        """Learn a prior from all data sets, and keep their points.

        Args:
            X: Inputs with the column of tasks.
            y: Labels, one per row.

        Returns:
            The estimator.

        Raises:
            ValueError: If these are not data that can be learned from, or there is one class only.
        """
        self._fit(X, y)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Predict the probability of every class.

        Args:
            X: Inputs with the column of tasks, as in `fit`.

        Returns:
            An array (rows, classes), with the classes in the order of `classes_`.

        Raises:
            ValueError: If the data are not of the kind that `fit` had.
        """
        return in_rows(self._answers(X), lambda one: one.predictive.mean)[:, self._places]

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Predict the most probable class.

        Args:
            X: Inputs with the column of tasks, as in `fit`.

        Returns:
            The labels (rows,).

        Raises:
            ValueError: If the data are not of the kind that `fit` had.
        """
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(1)]

    def _fit(self, X: Any, y: Any) -> None:  # noqa: N803
        if y is None:
            raise ValueError("y: this estimator requires y to be passed, but the target y is None; give the labels")
        check_classification_targets(y)
        super()._fit(X, y)
        labels = np.asarray(y).reshape(-1)
        self.classes_ = np.unique(labels[~np.asarray(pd.isna(labels))])
        strange = [label for label in self.classes_ if str(label) not in self._names()]
        if strange:
            raise ValueError(
                f"y: got the label {strange[0]!r}, expected labels without blanks around them, and none that stands "
                "for an empty cell, as NA does"
            )
        self._places = [self._names().index(str(label)) for label in self.classes_]

    def _names(self) -> list[str]:
        return list(self.model_.columns.encodings.classes)

    def _columns(self, answers: Sequence[Answer], quantiles: Sequence[float]) -> dict[str, Any]:
        def probability(place: int, one: Answer) -> np.ndarray:
            return one.predictive.mean[:, place]

        return {f"is_{label}": partial(probability, place) for place, label in enumerate(self._names())}

    def _likelihood(self, tasks: Collection) -> tuple[Likelihood, int]:
        assert tasks.encodings is not None
        count = len(tasks.encodings.classes)
        return Categorical(count), count
