"""What an experiment leaves on disk: settings that are frozen, and a record of every run that was made under them.

    NAME/settings/SCALE.json        all that is run at a scale; its hash goes into every record
    NAME/search/SCALE/runs/         what choices scored on tasks that are no tests; the best are `chosen` in settings
    NAME/results/SCALE/runs/        a record a run
    NAME/results/SCALE/looks.json   under which settings the test sets have been scored so far

A record is *stale* if the hash in it is not that of the settings as they are, or if its run is no longer planned so.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bnnp._core.files import write_atomically

CHOSEN = "chosen"
REVISION = "revision"
"""A number in settings, raised when the code changes what runs do, so that their records are stale."""
UNKNOWN = "of before settings were frozen"


def settings_file(experiment: Path, scale: str) -> Path:
    return experiment / "settings" / f"{scale}.json"


def read_settings(experiment: Path, scale: str) -> dict[str, Any]:
    """The frozen settings of a scale. Lists become tuples, so that nobody changes them by accident."""
    return _as_tuples(json.loads(settings_file(experiment, scale).read_text()))


def freeze_choice(experiment: Path, scale: str, chosen: Mapping[str, str]) -> Path:
    """Write into the settings what a search has chosen. Records of before are stale from then on."""
    file = settings_file(experiment, scale)
    settings = json.loads(file.read_text())
    settings[CHOSEN] = settings.get(CHOSEN, {}) | dict(chosen)
    return write_atomically(file, json.dumps(settings, indent=1) + "\n")


def fingerprint(settings: Mapping[str, Any]) -> str:
    """The hash of settings, whatever the order and the layout of their file."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def without_choice(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are before a search."""
    return {name: value for name, value in settings.items() if name != CHOSEN}


def record_file(place: Path, key: str) -> Path:
    return place / "runs" / f"{key}.json"


def error_file(place: Path, key: str) -> Path:
    return place / "runs" / f"{key}.error.txt"


def kept_record(place: Path, key: str) -> dict[str, Any] | None:
    path = record_file(place, key)
    return json.loads(path.read_text()) if path.exists() else None


def why_stale(record: Mapping[str, Any], identity: Mapping[str, Any]) -> str:
    """Why a record is not one of the run with this identity, in words; nothing if it is."""
    wanted = json.loads(json.dumps(identity))
    if "frozen" in wanted and record.get("frozen") != wanted["frozen"]:
        return f"settings {record['frozen']}, now {wanted['frozen']}" if "frozen" in record else UNKNOWN
    return "" if {name: record.get(name) for name in wanted} == wanted else "other arguments"


def note_look(place: Path, frozen: str, commit: str) -> None:
    """Note that test sets are scored under these settings, once for all runs."""
    looks = looks_at(place)
    if not looks or looks[-1]["frozen"] != frozen:
        write_atomically(place / "looks.json", json.dumps([*looks, {"frozen": frozen, "commit": commit}]) + "\n")


def looks_at(place: Path) -> list[dict[str, str]]:
    """The settings under which test sets have been scored, in the order of time."""
    file = place / "looks.json"
    return json.loads(file.read_text()) if file.exists() else []


@dataclass(frozen=True)
class Kept:
    """The records of an experiment that are there.

    Attributes:
        records: The records by the name of the run.
        stale: Why a record is stale, by name.
    """

    records: dict[str, dict[str, Any]]
    stale: dict[str, str]

    def results(self) -> dict[str, Any]:
        """Of all runs whose record is not stale, by name."""
        return {key: record["result"] for key, record in self.records.items() if key not in self.stale}


def _as_tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_as_tuples(one) for one in value)
    return {name: _as_tuples(one) for name, one in value.items()} if isinstance(value, dict) else value
