"""`measure` in a process of its own: what `measure_in_process` starts."""

import json
import math
import sys
from pathlib import Path

from bnnp.bench.measuring import measure
from bnnp.bench.settings import Setting


def peak_megabytes() -> float:
    """Peak memory of this process, NaN where the system does not tell."""
    try:
        import resource
    except ImportError:
        return math.nan
    per_megabyte = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / per_megabyte


def main(setting: str, kinds: str, repeats: str, plain: str) -> None:
    fields = json.loads(setting)
    chosen = Setting(**{**fields, "sizes": tuple(fields["sizes"])})
    seconds = measure(chosen, kinds.split(","), Path(plain) if plain else None, int(repeats))
    print(json.dumps({"seconds": seconds, "peak_megabytes": peak_megabytes()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
