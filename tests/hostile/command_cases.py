"""Bad commands: options of every verb, found from the verbs themselves, bad tables, and contradictions.

`cases()` is the one table. Every row is a command and a text that its message must have.
"""

import inspect
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bnnp.cli.entry import VERBS
from hostile.tables import COLUMN_OPTIONS, CONTRADICTIONS, TABLES

GOOD = {
    "demo": ["--quiet"],
    "train": [
        "{known}",
        "--task",
        "subject",
        "--x",
        "hour",
        "--y",
        "level",
        "--hidden",
        "4",
        "--steps",
        "2",
        "--quiet",
    ],
    "predict": ["{model}", "--context", "{known}", "--targets", "{wanted}", "--samples", "4"],
    "infer": [
        "{model}",
        "--context",
        "{known}",
        "--targets",
        "{wanted}",
        "--method",
        "ensemble",
        "--steps",
        "2",
        "--quiet",
    ],
    "evaluate": ["{model}", "{known}", "--task", "subject", "--samples", "4"],
    "sample": ["{model}", "--num", "2"],
    "compare": ["{known}", "--task", "subject", "--x", "hour", "--y", "level", "--quiet"],
    "app": ["{model}", "--table", "{known}", "--task", "subject", "--export", "page.html"],
    "experiment": ["posterior_quality", "--scale", "smoke", "--only", "no run at all", "--quiet"],
    "bench": ["--setting", "a", "--repeats", "1", "--quiet"],
    "info": ["{model}"],
    "card": ["{model}"],
}
"""A command of every verb, to which one bad option is added."""
OUT = {
    "demo": "out",
    "train": "out",
    "experiment": "out",
    "compare": "out",
    "evaluate": "out.json",
    "bench": "out.json",
    "card": "out.md",
}
FOLDERS = ("demo", "train", "experiment", "compare")
"""Verbs that write a folder."""
FILES = ["{nowhere}", "{folder}", "{empty}", "{picture}", "{binary}"]
BY_KIND: dict[Any, list[str]] = {
    int: ["0", "-1", "2.5", "three", "", "nan", "1e3"],
    float: ["0", "-1", "nan", "inf", "half", "", "1,5"],
    Path: FILES,
    str: ["nonsense", "", "7"],
    bool: [],
}
"""Bad values by the kind of an option."""
BY_NAME = {
    "context_share": ["1,2,3", "a,b", "0.5,0.1", "nan", "-1", ",", "0.1;0.5", ""],
    "learning_rate": ["1,2,3", "a,b", "nan", "-1", ",", ""],
    "hidden": ["0", "-1", "4,,4", "a", "2.5", "4;4", "nan"],
    "seed": ["2.5", "x", "", "nan", str(2**70)],
    "learnability": ["-0.1", "1.1", "nan", "half", ""],
    "warmup": ["-1", "2.5", "x", ""],
    "low": ["nan", "inf", "x", "1e30"],
    "high": ["nan", "-inf", "x", "-1e30"],
    "points": ["0", "1", "-1", "2.5", "x"],
    "max_noise": ["0", "-1", "nan", "x", "0.01"],
    "task": ["nobody", "", "level"],
    "x": ["nothing", "subject", "level"],
    "y": ["nothing", "subject", "hour"],
    "role": ["nothing", "hour", ""],
    "delimiter": [";;", "", "tab"],
    "decimal": [";", "", "point"],
    "out": ["{folder}", "{known}/p.csv", "p.docx", "p"],
    "workers": ["0", "2.5", "x", ""],
    "only": [],
    "port": ["-1", "65536", "2.5", "x", "", "80"],
    "export": ["{folder}", "{known}/p.html", "p.docx", "p", "{known}"],
    "plot": ["{folder}", "{known}/p.png", "p.docx", "p", "{known}"],
    "model": ["{nowhere}", "{empty}", "{picture}", "{binary}", "{known}", "zoo:nonsense", "zoo:", "{folder}"],
}
"""Bad values of options that are not as their kind says."""
BY_NAME["models"] = [*BY_NAME["model"], "{peer}"]
OF_FOLDERS = {"out": ["{known}", "{known}/m"], "model": BY_KIND[str]}


def cases() -> Iterator[tuple[str, list[str], str]]:
    """Every bad command: its label, its words, and what its message must have."""
    yield from of_options()
    for label, verb, words in COLUMN_OPTIONS:
        for name, (content, message) in TABLES.items():
            if verb == "sample" and "name" in name.split():  # it reads no names
                continue
            yield (
                f"{label}-{name}",
                [verb, *_with_out(verb, [w.format(bad=f"{{{content}}}", **KEPT) for w in words])],
                message,
            )
    for number, (words, message) in enumerate(CONTRADICTIONS):
        yield f"contradiction-{number}", [words[0], *_with_out(words[0], words[1:])], message


KEPT = {name: f"{{{name}}}" for name in ("known", "wanted", "model")}


def of_options() -> Iterator[tuple[str, list[str], str]]:
    """Every option of every verb with every bad value."""
    for verb in VERBS:
        name = verb.__name__
        for option, kind, by_place in options(verb):
            for number, value in enumerate(bad_values(name, option, kind)):
                flag = "--" + option.replace("_", "-")
                words = _replaced(name, option, value) if by_place else [*GOOD[name], flag, value]
                expected = (
                    "" if by_place or kind is Path else "column|--" if option in ("x", "y", "task", "role") else flag
                )
                yield f"{name}-{option}-{number}", [name, *_with_out(name, words, option)], expected


def bad_values(verb: str, name: str, kind: Any) -> list[str]:
    """Values that an option of a verb must refuse."""
    if verb in FOLDERS and name in OF_FOLDERS:
        return [] if (verb, name) == ("experiment", "out") else OF_FOLDERS[name]
    return BY_NAME[name] if name in BY_NAME else BY_KIND[kind]


def options(verb: Any) -> Iterator[tuple[str, Any, bool]]:
    """Name and kind of every option of a verb, and whether it is given by its place."""
    for name, parameter in inspect.signature(verb).parameters.items():
        if not typing.get_args(parameter.annotation):  # the call itself
            continue
        kind, info = typing.get_args(parameter.annotation)[:2]
        for part in typing.get_args(kind):
            kind = part if part is not type(None) else kind
        inner = typing.get_args(kind)
        yield name, inner[0] if inner else kind, type(info).__name__ == "ArgumentInfo"


def _replaced(verb: str, option: str, value: str) -> list[str]:
    """A good command with another argument in the place of the model, the table or the name."""
    place = 1 if (verb, option) == ("evaluate", "table") else 0
    return [*GOOD[verb][:place], value, *GOOD[verb][place + 1 :]]


def _with_out(verb: str, words: list[str], option: str = "") -> list[str]:
    return (
        words
        if verb in ("info", "app") or option == "out" or "--out" in words
        else [*words, "--out", OUT.get(verb, "out.csv")]
    )
