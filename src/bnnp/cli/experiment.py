"""`bnnp experiment`: do an experiment of the paper again. The experiments are in the repository, not in the package."""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from bnnp._core.checks import check_choice
from bnnp.cli.options import OUTPUT, Quiet
from bnnp.cli.words import print_files

FOLDER_VARIABLE = "BNNP_EXPERIMENTS"
RUNS = "Runs"
BACKENDS = ("loky", "threading", "multiprocessing", "sequential", "dask", "ray")

Name = Annotated[str, typer.Argument(help="An experiment of the paper: a folder of experiments/.")]
Scale = Annotated[
    str,
    typer.Option(
        help="smoke, small, long, paper: seconds, up to half an hour, hours, the paper's own.", rich_help_panel=RUNS
    ),
]
Workers = Annotated[int, typer.Option(help="Runs side by side.", rich_help_panel=RUNS)]
Backend = Annotated[str, typer.Option(help="Of joblib: loky here, dask or ray on a cluster.", rich_help_panel=RUNS)]
Only = Annotated[str, typer.Option(help="Only runs whose name contains this.", rich_help_panel=RUNS)]
Search = Annotated[
    bool,
    typer.Option(
        "--search",
        help="Choose settings on tasks that are no tests, and freeze them; records made before are stale then.",
        rich_help_panel=RUNS,
    ),
]
OutFolder = Annotated[
    Path | None,
    typer.Option(
        "--out", help="Folder for results; experiments/NAME/results/SCALE if not given.", rich_help_panel=OUTPUT
    ),
]


def experiment(
    name: Name,
    scale: Scale = "small",
    workers: Workers = 1,
    backend: Backend = "loky",
    only: Only = "",
    search: Search = False,
    out: OutFolder = None,
    quiet: Quiet = False,
) -> None:
    """Do an experiment of the paper again. Finished runs are not repeated; a stopped run continues.

    Example: bnnp experiment posterior_quality --scale small --workers 2
    """
    if workers == 0 or workers < -1:
        raise ValueError(
            f"workers: got {workers}, expected a number of runs side by side, as in 2, or -1 for all processors"
        )
    check_choice("backend", backend, BACKENDS)
    folder = experiments_folder()
    harness, how = load_harness(folder), {"workers": workers, "backend": backend, "only": only, "progress": not quiet}
    if search:
        for what, choice in harness.perform_search(folder, name, scale, out, **how).items():
            print(f"chosen for {what}: {choice}")
        return
    outcome = harness.perform(folder, name, scale, out, **how)
    for file in outcome.files:
        if file.suffix == ".md":
            print(file.read_text())
    print_files(outcome.files)
    for run, reason in outcome.failed.items():
        print(f"failed: {run}: {reason}", file=sys.stderr)
    if outcome.failed:
        raise typer.Exit(1)


def experiments_folder() -> Path:
    """The folder of the experiments: `BNNP_EXPERIMENTS`, else `experiments` here, else beside the package's source.

    Raises:
        FileNotFoundError: If none of these folders holds the experiments.
    """
    given = os.environ.get(FOLDER_VARIABLE)
    beside = Path(__file__).resolve().parents[3] / "experiments"
    for folder in [Path(given)] if given else [Path("experiments"), beside]:
        if (folder / "harness.py").is_file():
            return folder.resolve()
    raise FileNotFoundError(
        f"experiments: found no {given or 'experiments'}/harness.py; expected a copy of the project's experiments: go "
        f"to a clone of the repository, or set {FOLDER_VARIABLE}"
    )


def load_harness(folder: Path) -> ModuleType:
    """Import `harness.py` of the experiments. Its folder goes on the path, so that processes of joblib find it too."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return importlib.import_module("harness")
