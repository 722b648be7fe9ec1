"""What the records say of the paper's claims."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from claims import Claim, has_arrived, paired, worst
from score_tables import mean_and_error, over, samples_of, text_of

from .methods import LABELS, NEW
from .models import LEARNED, NAMES
from .report import PAPER_LPPD, best_trivial, found_of, methods_in

SCORES = {"pooled_lppd": "pooled LPPD", "marginal_lppd": "marginal LPPD"}
CLOSE = 0.05
"""Nats a point: a difference in log-density that nobody would notice."""


def claims(settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[Claim]:
    found = []
    for process in settings["processes"]:
        for prior in LEARNED:
            for score, kind in SCORES.items():
                for part in ("all", "region") if process == "climate" else ("all",):
                    found.append(_every_method(process, prior, score, kind, part, settings, results))
                found.append(_still_matters(process, prior, score, kind, settings, results))
    return found


def _every_method(process: str, prior: str, score: str, kind: str, part: str, settings: Any, results: Any) -> Claim:
    """The learned prior is better for every method; the gain is that of the method for which it is least certain."""
    where = ", left-out region" if part == "region" else ""
    how = _learned(process, prior, settings)
    text = f"{NAMES[process]}{where}: {kind} is better under the prior {how} for every method"
    theirs = PAPER_LPPD[process]
    wins = sum(learned > standard for standard, learned in theirs.values())
    paper = f"{wins} of {len(theirs)} methods" if score == "pooled_lppd" else ""
    gains, late, missing, seeds = {}, [], [], []
    for method in methods_in(process, settings):
        pair = [found_of(process, method, which, settings, results) for which in ("standard", prior)]
        both = [seed for seed in pair[0] if seed in pair[1]]
        if not both:
            missing.append(LABELS[method])
            continue
        values = [[mean_and_error(one[seed][part], score)[0] for seed in both] for one in pair]
        gains[method] = paired(values[1], values[0])
        seeds.append(len(both))
        if not all(has_arrived(one[seed]["convergence"]) for one in pair for seed in both):
            late.append(LABELS[method])
    if not gains:
        return Claim("4.3", text, paper)
    notes = {"not arrived": late, "not run": missing}
    said = [f"{name}: {', '.join(some)}" for name, some in notes.items() if some]
    arrived = [gain for method, gain in gains.items() if LABELS[method] not in late]
    least = worst(arrived or list(gains.values()))
    contradicted = bool(arrived) and least[0] < 0  # for which one method is enough; it takes all to bear a claim out
    return Claim(
        "4.3",
        text,
        paper,
        "; ".join([f"{sum(gain > 0 for gain, _ in gains.values())} of {len(gains)} methods", *said]),
        trivial=best_trivial(process, part, score, results),
        gain=least,
        seeds=min(seeds),
        picked=len(arrived or gains) if least[0] < 0 else 1,
        doubts="" if contradicted else ", ".join([*late, *missing]),
    )


def _learned(process: str, prior: str, settings: Any) -> str:
    """How the prior was learned, and for how long."""
    choices = settings["processes"][process]
    budget = f"{choices['recipe_minutes']:g} minutes" if prior == "recipe" else f"{choices['paper']['steps']:,} steps"
    return f"{LEARNED[prior]} in {budget}"


def _still_matters(process: str, prior: str, score: str, kind: str, settings: Any, results: Any) -> Claim:
    """Under the learned prior the best method is better than the worst one, by more than nobody would notice."""
    how = _learned(process, prior, settings)
    text = f"{NAMES[process]}: methods differ by more than {CLOSE} in {kind} under the prior {how}"
    found = {m: found_of(process, m, prior, settings, results) for m in [*methods_in(process, settings), NEW]}
    if not any(found.values()):
        return Claim("4.3", text)
    sure, said = _comparable(found)
    seeds = [seed for seed in next(iter(sure.values()), {}) if all(seed in one for one in sure.values())]
    if len(sure) < 2 or not seeds:
        return Claim("4.3", text, ours=said, gain=(0.0, math.nan), doubts=said)
    values = {m: [mean_and_error(one[seed]["all"], score)[0] for seed in seeds] for m, one in sure.items()}
    level = {method: over(some) for method, some in values.items()}
    low, high = (pick(level, key=lambda method: level[method][0]) for pick in (min, max))
    gain = paired([value - CLOSE for value in values[high]], values[low])
    exact = mean_and_error(results.get(f"{process}-trivial", {"all": {}})["all"].get("exact posterior"), score)
    ours = f"{LABELS[low]} {text_of(level[low])} to {LABELS[high]} {text_of(level[high])}"
    return Claim(
        "4.3",
        text,
        ours="; ".join([ours, said] if said else [ours]),
        oracle="" if math.isnan(exact[0]) else f"{exact[0]:.2f}",
        trivial=best_trivial(process, "all", score, results),
        gain=gain,
        seeds=len(seeds),
        picked=math.comb(len(sure), 2),
        doubts=said if gain[0] <= 0 else "",  # one of those left out may differ
    )


def _comparable(found: Mapping[str, Mapping[int, Any]]) -> tuple[dict[str, Mapping[int, Any]], str]:
    """The methods that have arrived and are estimated from as many samples as most are; in words, which do not."""
    there = {method: one for method, one in found.items() if one}
    drawn = {method: samples_of(next(iter(one.values()))["all"]).split()[0] for method, one in there.items()}
    most = Counter(drawn.values()).most_common(1)[0][0]
    left = {
        "not run": [method for method in found if method not in there],
        "not arrived": [m for m, one in there.items() if not all(has_arrived(o["convergence"]) for o in one.values())],
        "of another number of samples": [method for method in there if drawn[method] != most],
    }
    said = [f"{name}: {', '.join(LABELS[method] for method in some)}" for name, some in left.items() if some]
    return {m: one for m, one in there.items() if not any(m in some for some in left.values())}, "; ".join(said)
