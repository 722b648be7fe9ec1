"""Pages of the tutorials: each script of `examples/` is run as it is; its output and its figure are shown beside it.

    python docs_tools/tutorials.py [NAME ...]      # up to three minutes each, on one core

The pages are kept in `docs/tutorials/`. Each names the checksum of the script that printed what it shows.
"""

import ast
import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "tutorials"
NAMES = (
    "patients",
    "few_data_sets",
    "prior_in_hand",
    "image_completion",
    "meta_optimisation",
    "million_points",
)
SECONDS = 180
"""What a tutorial may take of one core."""


def script(name: str) -> Path:
    return ROOT / "examples" / f"{name}.py"


def checksum(name: str) -> str:
    return hashlib.sha256(script(name).read_bytes()).hexdigest()


def introduction(name: str) -> str:
    """Title, takeaway and explanation, from the docstring of the script."""
    text = ast.get_docstring(ast.parse(script(name).read_text())) or ""
    title, takeaway, *rest = text.split("\n\n")
    return "\n\n".join([f"# {title}", f"*{takeaway.strip()}*", *rest])


def processor_seconds() -> float:
    """Of the processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(name: str, folder: Path) -> tuple[str, float]:
    """Run a script; what it prints, and its processor seconds. The figure is `NAME.png` in the folder."""
    before = processor_seconds()
    command = [sys.executable, str(script(name)), str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return printed, processor_seconds() - before


def page(name: str, printed: str, seconds: float, commit: str) -> str:
    return f"""{introduction(name)}

## What it prints

It took {seconds:.0f} seconds of one core, at commit {commit}. Other machines and versions print somewhat different
numbers.

```text
{printed.rstrip()}
```

![The figure of this tutorial]({name}.png)

## The script

``` {{ .python }}
--8<-- "examples/{name}.py"
```

<!-- printed by the script with checksum {checksum(name)} -->
"""


def make(name: str) -> None:
    """Run a script and write its page."""
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        printed, seconds = run(name, Path(folder))
        if seconds > SECONDS:
            raise SystemExit(f"{name}: took {seconds:.0f} s, expected at most {SECONDS} s")
        shutil.copy(Path(folder) / f"{name}.png", PAGES)
    (PAGES / f"{name}.md").write_text(page(name, printed, seconds, commit))
    print(f"wrote {PAGES / name}.md after {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or NAMES:
        make(chosen)
