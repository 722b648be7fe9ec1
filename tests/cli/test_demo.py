import pandas as pd

import bnnp
from bnnp import demo


def test_demo_scores_three_models_and_writes_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "HIDDEN", (6, 6))
    result = demo.run(tmp_path / "demo", steps=10, progress=False)
    assert list(result.table().index[:2]) == ["oracle", "learned prior"]
    assert result.table().loc["oracle", "pooled_lppd"] > 1.6
    assert {file.name for file in result.files} == {
        "functions.png",
        "calibration.png",
        "history.png",
        "scores.csv",
        "sawtooth.bnnp",
    }
    assert all(file.stat().st_size > 100 for file in result.files)
    assert pd.read_csv(tmp_path / "demo" / "scores.csv").shape[0] == len(result.scores)
    assert bnnp.load(tmp_path / "demo" / "sawtooth.bnnp").network.sizes == (1, 6, 6, 1)


def test_the_standard_prior_of_the_comparison_stays_standard():
    model = demo.train(learnable=False, steps=2, progress=False, seed=0).model
    assert model.prior.is_standard()
    assert not demo.train(learnable=True, steps=2, progress=False, seed=0).model.prior.is_standard()
