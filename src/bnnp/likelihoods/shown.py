"""How models, posteriors and predictions show their columns and their likelihood."""

from bnnp._core.columns import Columns
from bnnp._core.show import listed
from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.gaussian import Gaussian


def rows_of(columns: Columns, likelihood: Likelihood) -> dict[str, object]:
    """Names of the columns, and the likelihood; if it is Gaussian, also the noise in the user's units."""
    rows: dict[str, object] = {
        "inputs": listed(columns.x_names),
        "outputs": listed(columns.y_names),
        "likelihood": type(likelihood).__name__,
    }
    if isinstance(likelihood, Gaussian):
        noise = (likelihood.noise * columns.y_scale).tolist()
        shown = listed([f"{value:.4g}" for value in noise])
        name = "noise (standard deviation of the logarithm)" if columns.positive else "noise (standard deviation)"
        rows[name] = f"{shown}, varies with the inputs" if likelihood.varies else shown
    return rows
