"""What the records say of the paper's claims."""

import math
from collections.abc import Mapping
from typing import Any

from claims import Claim, difference, has_arrived, paired, worst
from score_tables import mean_and_error, over, text_of

from .methods import LABELS, NEW
from .models import LEARNED, NAMES
from .report import PAPER_LPPD, best_trivial, found_of, methods_in

SCORES = {"pooled_lppd": "pooled LPPD", "marginal_lppd": "marginal LPPD"}


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
    text = f"{NAMES[process]}{where}: {kind} is better under the prior {LEARNED[prior]} for every method"
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
        doubts="" if contradicted else ", ".join([*late, *missing]),
    )


def _still_matters(process: str, prior: str, score: str, kind: str, settings: Any, results: Any) -> Claim:
    """Under the learned prior the best method is better than the worst one."""
    text = f"{NAMES[process]}: methods still differ in {kind} under the prior {LEARNED[prior]}"
    values, doubts = {}, []
    for method in [*methods_in(process, settings), NEW]:
        found = found_of(process, method, prior, settings, results)
        if found:
            values[method] = [mean_and_error(one["all"], score)[0] for one in found.values()]
            doubts += [LABELS[method]] if not all(has_arrived(one["convergence"]) for one in found.values()) else []
    sure = {method: over(found) for method, found in values.items() if LABELS[method] not in doubts}
    if not values:
        return Claim("4.3", text)
    if len(sure) < 2:
        names = ", ".join(dict.fromkeys(doubts))
        return Claim("4.3", text, ours=f"not arrived: {names}", gain=(0.0, math.nan), doubts=names)
    low, high = (pick(sure, key=lambda method: sure[method][0]) for pick in (min, max))
    exact = mean_and_error(results.get(f"{process}-trivial", {"all": {}})["all"].get("exact posterior"), score)
    return Claim(
        "4.3",
        text,
        ours=f"{LABELS[low]} {text_of(sure[low])} to {LABELS[high]} {text_of(sure[high])}",
        oracle="" if math.isnan(exact[0]) else f"{exact[0]:.2f}",
        trivial=best_trivial(process, "all", score, results),
        gain=difference(sure[high], sure[low]),
        seeds=min(len(values[low]), len(values[high])),
    )
