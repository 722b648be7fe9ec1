"""Write `RESULTS.md` from the records, and from nothing else:

python experiments/results.py
"""

import math
from collections import Counter
from pathlib import Path

from bnnp._core.files import write_atomically
from claims import BEYOND, SURE, Claim, needed
from harness import Plan, best_choices, experiment_names, load_experiment, plan_of
from records import fingerprint, looks_at, settings_file
from score_tables import markdown_table

FOLDER = Path(__file__).resolve().parent
SCALES = ("small", "long", "paper")
HEADER = ("section", "claim", "paper", "ours", "oracle", "trivial", "repeats", "verdict")
HEAD = f"""# Results beside the paper's

This page is written by `python experiments/results.py` from the records in `NAME/results/SCALE/runs`, and a test sees
that it says what they say. Do not edit it. Each claim is a difference with its standard error over the repeats
(seeds; tables where that is said). It *holds* or *does not hold* if the difference is more than Student's
{needed(4):.1f} standard errors with four repeats ({needed(2):.1f} with two, {needed(8):.1f} with eight), which
{1 - SURE:.0%} of claims about nothing would be by chance; a difference that was picked from several because it is the
largest needs more. Otherwise, or with chains that have not mixed, one *cannot
tell*. *Not run* means that there is no record under the settings as they are frozen now: records of other settings, or
of before settings were frozen, are stale and are left out. Those of before are in the history of the repository, up to
commit fccc4b6: their code or their starts are gone, or their settings had been chosen on test sets.

*Oracle* is the best possible, where it is known; *trivial* the best of what needs no learning (population mean, nearest
neighbour, linear interpolation, blank image). The paper's numbers are those behind its figures; its LPPD is the pooled
one.
"""


def text(folder: Path = FOLDER) -> str:
    """The page."""
    parts, verdicts = [], Counter()
    for name in experiment_names(folder):
        scales = [scale for scale in SCALES if settings_file(folder / name, scale).is_file()]
        plans = [plan_of(folder, name, scale) for scale in scales]
        shown = [plan for plan in plans if plan.kept().results()] or plans[:1]
        for plan in shown:
            found = claims_of(plan)
            verdicts.update(claim.verdict() for claim in found)
            parts.append(section(plan, found))
    counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    return f"{HEAD}\n**Of {sum(verdicts.values())} claims: {counts}.**\n\n" + "\n".join(parts)


def claims_of(plan: Plan) -> list[Claim]:
    """The claims of an experiment, from the records that are not stale."""
    return load_experiment(plan.experiment).claims(plan.settings, plan.kept().results())


def section(plan: Plan, found: list[Claim]) -> str:
    """One experiment at one scale: what was run, and what it says of the claims."""
    rows = [
        [c.where, c.text, c.paper, c.ours, c.oracle, c.trivial, str(c.seeds or ""), f"**{c.verdict()}**"] for c in found
    ]
    return f"## {plan.experiment.name}, {plan.scale}\n\n{provenance(plan)}\n\n{markdown_table(HEADER, rows)}"


def provenance(plan: Plan) -> str:
    """What stands behind a section, in sentences."""
    name, planned, kept = plan.experiment.name, plan.runs(), plan.kept()
    done = [record for key, record in kept.records.items() if key not in kept.stale]
    frozen = fingerprint(plan.settings)
    said = [f"[{name}]({name}), `bnnp experiment {name} --scale {plan.scale}`: {len(done)} of {len(planned)} runs"]
    if done:
        hours = sum(record["seconds"] for record in done) / 3600
        worked = sum(record.get("processor_seconds", math.nan) for record in done) / 3600  # unknown for old records
        commits = ", ".join(sorted({record["made_by"]["commit"] for record in done}))
        said[0] += f", {hours:.2f} hours of them in all"
        said[0] += f" ({worked:.2f} of processor time)" if math.isfinite(worked) else ""
        said[0] += f", at {commits}"
    ends = [end for record in done for end in record.get("trainings", ())]
    if ends:
        rising = sum(end["slope"] > BEYOND * (end["slope_error"] or math.inf) for end in ends)
        said.append(
            f"Of {len(ends)} trainings by a number of steps, {rising} had objectives that still rose at the end"
        )
    looks = [look["frozen"] for look in looks_at(plan.place)]
    before = len(set(looks) - {frozen})
    said.append(f"Settings {frozen}, {searched(plan)}; looks at the tests under other settings: {before} or more")
    if kept.stale:
        said.append(f"{len(kept.stale)} stale records are left out")
    return ". ".join(said) + "."


def searched(plan: Plan) -> str:
    """Whether what the settings choose is what a search on tasks that are no tests found best."""
    if not hasattr(load_experiment(plan.experiment), "search"):
        return "nothing in them was searched for"
    best = best_choices(plan_of(plan.experiment.parent, plan.experiment.name, plan.scale, searches=True))
    chosen = plan.settings.get("chosen", {})
    without = [what for what in chosen if what not in best]
    wrong = [what for what in best if chosen.get(what) != best[what]]
    if wrong:
        return f"**not those that the search found best** for {', '.join(wrong)}"
    return (
        f"not searched for {', '.join(without)}"
        if without
        else "chosen by a recorded search on tasks that are no tests"
    )


if __name__ == "__main__":
    print(write_atomically(FOLDER / "RESULTS.md", text()))
