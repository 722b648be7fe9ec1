"""For people with tables: estimators of scikit-learn's kind, cross-validation over data sets, formulas."""

from bnnp._core.optional import optional_module

optional_module("sklearn", "an estimator", "tables")

from bnnp.estimator.estimators import BNNPClassifier, BNNPRegressor  # noqa: E402, after the check
from bnnp.estimator.folds import ContextSplit  # noqa: E402
from bnnp.estimator.formula import fit_table  # noqa: E402

__all__ = ["BNNPClassifier", "BNNPRegressor", "ContextSplit", "fit_table"]
