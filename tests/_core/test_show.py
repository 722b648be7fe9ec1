"""What objects show of themselves: few lines, the user's names in them, and no markup of the user's in HTML."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch

import bnnp
from bnnp._core.show import as_html, as_text, listed, span

RISKY = "<b>conc & more</b>"
MOST_LINES = 12


@pytest.fixture(scope="module")
def objects() -> dict[str, object]:
    """One object of every kind that people look at, all from a table with a risky column name."""
    rng = np.random.default_rng(0)
    rows = [(f"s{i}", x, np.sin(3 * x) + i) for i in range(4) for x in rng.uniform(-1, 1, 6 + i)]
    tasks = bnnp.tasks.from_table(pd.DataFrame(rows, columns=["who", "time", RISKY]), task="who", x="time", y=RISKY)
    result = bnnp.fit(bnnp.BNNP(1, 1, (4,), seed=0), tasks, steps=2, progress=False)
    model, first = result.model, tasks[0]
    peers = {f"peer {name}": peer(1, 1, (4,), seed=0) for name, peer in bnnp.neural_processes.PEERS.items()}
    post = model.condition(first.x, first.y, seed=0)
    mcmc = bnnp.infer(model.prior, model.network, first.x, first.y, likelihood=model.likelihood, method="laplace")
    split = bnnp.tasks.Split(first.take(torch.arange(3)), first.take(torch.arange(3, 6)))
    batch = bnnp.tasks.SplitBatch.of([split, split])
    found: dict[str, object] = {"task": first, "collection": tasks, "split": split}
    found |= {"task batch": batch.context, "split batch": batch}
    found |= {"fit result": result, "history": result.history, "prior": model.prior, "model": model, **peers}
    found |= {"posterior": post, "inferred posterior": mcmc}
    found |= {f"{name} posterior": peer.condition(first.x, first.y, num_samples=3) for name, peer in peers.items()}
    found |= {"mixture": post.predict(first.x), "samples": post.predict_by_samples(first.x)}
    return found | {"scores": bnnp.evaluate(model, tasks, num_samples=5)}


def test_every_object_is_short_in_text_and_in_html(objects):
    for name, value in objects.items():
        text, page = repr(value), value._repr_html_()  # pyright: ignore[reportAttributeAccessIssue]
        assert len(text.splitlines()) <= MOST_LINES, f"{name}:\n{text}"
        assert text.startswith(type(value).__name__), name
        assert page.startswith("<table><caption>"), name
        assert page.count("<tr>") + 1 <= MOST_LINES, name
        assert "tensor(" not in text, name


def test_columns_shape_and_noise_are_named(objects):
    assert repr(objects["task"]) == "Task(name: 's0', points: 6, inputs: 1, outputs: 1)"
    for name in ("collection", "model", "posterior", "inferred posterior", "mixture", "samples"):
        assert RISKY in repr(objects[name]), name
    model = objects["model"]
    noise = float(model.likelihood.noise.detach() * model.columns.y_scale)  # pyright: ignore
    for name in ("model", "posterior", "inferred posterior", "mixture"):
        assert f"{noise:.4g}" in repr(objects[name]), name
    for name in ("model", "posterior", "prior"):
        assert "1 - 4 - 1" in repr(objects[name]), name
    assert "(6, 1)" in repr(objects["mixture"])
    assert "6 to 9" in repr(objects["collection"])
    assert "steps" not in repr(objects["fit result"])
    assert "step" in repr(objects["fit result"])
    assert "mae" in repr(objects["scores"])


def test_html_has_no_unescaped_text_of_the_user(objects):
    named = [name for name, value in objects.items() if RISKY in repr(value)]
    assert {"collection", "model", "posterior", "mixture"} <= set(named)
    for name in named:
        page = objects[name]._repr_html_()  # pyright: ignore[reportAttributeAccessIssue]
        assert "<b>" not in page, name
        assert "&lt;b&gt;conc &amp; more&lt;/b&gt;" in page, name


def test_comparing_does_not_raise(objects):
    """Copies share their model, so that a comparison field by field would come to the tensors."""
    models = [value for value in objects.values() if isinstance(value, torch.nn.Module)]
    kept = {id(part): part for model in models for part in model.modules()}
    for name, value in objects.items():
        assert value == value, name
        assert isinstance(value == copy.deepcopy(value, dict(kept)), bool), name
        assert value != "something else", name


def test_other_records_that_hold_arrays_compare_too():
    tasks, x = bnnp.tasks.gp(), torch.zeros(2, 1)
    pairs = [
        lambda: tasks.oracle(x, x, x),
        lambda: bnnp.evaluation.Oracle(tasks).condition(x, x),
        lambda: bnnp.evaluation.Calibration(np.zeros((2, 2)), 9, ("a", "b")),
        lambda: bnnp.BNNP(1, 1, (2,)).prior.functions(1)[0],
    ]
    for make in pairs:
        assert make() != make()


def test_a_line_where_it_fits_and_one_line_per_name_where_not():
    assert as_text("Thing", {"a": 1, "b": "two"}) == "Thing(a: 1, b: two)"
    assert as_text("Thing", {"a": "x" * 60, "longer": "y" * 60}) == f"Thing\n  a       {'x' * 60}\n  longer  {'y' * 60}"
    assert as_text("Thing", {"name": "two\nlines"}) == "Thing(name: two lines)"
    assert len(as_text("Thing", {"name": "word " * 1000})) < 100


def test_parts_of_a_description_in_html_and_text():
    assert as_html("T<i>", {"<a>": "<b>"}) == (
        "<table><caption>T&lt;i&gt;</caption><tr><th>&lt;a&gt;</th><td>&lt;b&gt;</td></tr></table>"
    )
    assert listed(["a", "b"]) == "a, b"
    assert listed([str(i) for i in range(9)]) == "0, 1, 2, 3, 4, 5, ... (9 in all)"
    assert (span([]), span([2, 2]), span([3, 1.5])) == ("none", "2", "1.5 to 3")
