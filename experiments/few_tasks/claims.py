"""What the records say of the paper's claims."""

import math
from collections.abc import Mapping
from typing import Any

from claims import Claim, difference, has_arrived, paired, worst
from score_tables import mean_and_error, over, text_of

from .report import LABELS, NAMES, PAPER, chosen_noise, rows_of

METHODS = ("mfvi", "givi", "np", "bnp")
BEST = {"abalone": 0.8, "paul15": 0.5}
"""The paper's best shares, fixed before any look."""
SCORES = {"pooled_lppd": "pooled LPPD", "marginal_lppd": "marginal LPPD"}


def claims(settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[Claim]:
    found = []
    for data in settings["data"]:
        rows, late = rows_of(data, settings, results), late_methods(data, settings, results)
        for score, kind in SCORES.items():
            values = {name: [mean_and_error(one, score)[0] for one in scores] for name, scores in rows.items()}
            found += [
                _inverted_u(data, score, kind, values, len(settings["seeds"])),
                _above_peers(data, score, kind, values, late),
                _recipe(data, kind, values),
            ]
    return [claim for claim in found if claim.text]


def late_methods(data: str, settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[str]:
    """Those of which the bound still rises."""
    noise = chosen_noise(data, settings["data"][data], results)
    found = {method: results.get(f"{data}-{method}-{noise}") for method in ("mfvi", "givi")}
    return [method for method, one in found.items() if one is not None and not has_arrived(one["convergence"])]


def _inverted_u(data: str, score: str, kind: str, values: Mapping[Any, list[float]], seeds: int) -> Claim:
    """The paper's own best share is above both ends; the best of ours would be above them by chance too."""
    share = BEST.get(data, 0.5)
    shares = {name: found for name, found in values.items() if not isinstance(name, str)}
    text = f"{NAMES[data]}: {kind} at learnability {share} is above that at 0 and that at 1"
    theirs = {share: value for share, value in PAPER[data].items() if not isinstance(share, str)}
    paper = _curve(theirs) if score == "pooled_lppd" else ""
    if any(len(shares.get(one, ())) < seeds for one in (share, 0.0, 1.0)):  # repeats of the same seed belong together
        return Claim("4.4", text, paper)
    least = worst([paired(shares[share], shares[end]) for end in (0.0, 1.0)])
    return Claim(
        "4.4",
        text,
        paper,
        _curve({share: over(found)[0] for share, found in sorted(shares.items())}),
        trivial=_trivial(values),
        gain=least,
        seeds=seeds,
        picked=2 if least[0] < 0 else 1,
    )


def _above_peers(data: str, score: str, kind: str, values: Mapping[Any, list[float]], late: list[str]) -> Claim:
    """At the paper's own best share. A peer that has not arrived can speak against the BNNP, but not for it."""
    share = BEST.get(data, 0.5)
    peers = {name: over(values[name]) for name in METHODS if name in values}
    text = f"{NAMES[data]}: {kind} at learnability {share} is above MFVI, GIVI, NP and BNP"
    theirs = PAPER[data]
    known = score == "pooled_lppd" and share in theirs
    paper = f"{theirs[share]}; best {max(theirs[name] for name in METHODS)}" if known else ""
    if len(peers) < len(METHODS) or share not in values:
        return Claim("4.4", text, paper)
    best, ours = max(peers, key=lambda name: peers[name][0]), over(values[share])
    gain, doubts = difference(ours, peers[best]), ", ".join(LABELS[name] for name in late)
    return Claim(
        "4.4",
        text,
        paper,
        f"{text_of(ours)}; {LABELS[best]} {text_of(peers[best])}" + (f"; not arrived: {doubts}" if doubts else ""),
        trivial=_trivial(values),
        gain=gain,
        seeds=min(len(values[share]), *(len(values[name]) for name in METHODS)),
        picked=len(peers) if gain[0] < 0 else 1,
        doubts=doubts if gain[0] > 0 else "",
    )


def _recipe(data: str, kind: str, values: Mapping[Any, list[float]]) -> Claim:
    text = f"{NAMES[data]}: {kind} of the one recipe is above that of every learnability"
    shares = {name: over(found) for name, found in values.items() if not isinstance(name, str)}
    if not shares or "recipe" not in values:
        return Claim("beyond", text)
    best = max(shares, key=lambda share: shares[share][0])
    ours = over(values["recipe"])
    gain = difference(ours, shares[best])
    return Claim(
        "beyond",
        text,
        ours=f"{text_of(ours)}; {best}: {text_of(shares[best])}",
        trivial=_trivial(values),
        gain=gain,
        seeds=min(len(values["recipe"]), len(values[best])),
        picked=len(shares) if gain[0] < 0 else 1,
    )


def _trivial(values: Mapping[Any, list[float]]) -> str:
    names = [name for name in ("population mean", "nearest neighbour") if name in values]
    best = max(names, key=lambda name: values[name][0], default="")
    return f"{best} {values[best][0]:.2f}" if best and math.isfinite(values[best][0]) else ""


def _curve(values: Mapping[float, float]) -> str:
    return ", ".join(f"{share:g}: {value:.2f}" for share, value in values.items())
