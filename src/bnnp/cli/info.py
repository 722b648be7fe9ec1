"""`bnnp info`: what a model file holds."""

import bnnp
from bnnp.cli.options import ModelFile
from bnnp.likelihoods.gaussian import Gaussian


def info(model: ModelFile) -> None:
    """What a model file holds.

    Example: bnnp info zoo:sawtooth
    """
    from rich.console import Console
    from rich.table import Table

    loaded = bnnp.load(model)
    rows: dict[str, object] = {
        "inputs": ", ".join(loaded.columns.x_names),
        "outputs": ", ".join(loaded.columns.y_names),
        "model": type(loaded).__name__,
        **loaded.summary(),
        "likelihood": type(loaded.likelihood).__name__,
        "parameters": sum(p.numel() for p in loaded.parameters()),
        "precision": str(loaded.dtype).removeprefix("torch."),
    }
    if isinstance(loaded.likelihood, Gaussian):
        noise = (loaded.likelihood.noise * loaded.columns.y_scale).tolist()
        rows["noise (standard deviation)"] = ", ".join(f"{value:.4g}" for value in noise)
    table = Table(title=model, show_header=False)
    for name, value in rows.items():
        table.add_row(name, str(value))
    Console().print(table)
