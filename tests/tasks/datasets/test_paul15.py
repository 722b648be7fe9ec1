"""Blood cells: the paper's clusters on the saved components, the way there from the counts, and every bad file."""

import gzip
import io
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import bnnp
from bnnp.tasks import paul15
from bnnp.tasks.datasets import cells
from bnnp.tasks.datasets.cells import _COUNTS, principal_components, read_counts
from conftest import real_data

SAVED, COUNTS = "paul15/paul15_pca100_dpt.npz", "paul15/paul15.h5ad.gz"
NAMES = np.array(["1Ery", "2Ery", "3Ery", "4Ery"] * 10)


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"X_pca": rng.normal(size=(40, 3)), "dpt_pseudotime": rng.uniform(size=40), "cluster": NAMES}


def put(home: Path, **changes) -> Path:
    (home / "paul15").mkdir(parents=True, exist_ok=True)
    content = {name: value for name, value in {**arrays(), **changes}.items() if value is not None}
    np.savez(home / SAVED, **content)
    return home


def h5ad(counts: np.ndarray, names: np.ndarray = NAMES, root: int = 3) -> bytes:
    """A file of the h5ad format, with what is read from it."""
    h5py = pytest.importorskip("h5py")
    content = io.BytesIO()
    categories, codes = np.unique(names, return_inverse=True)
    with h5py.File(content, "w") as file:
        file["X"] = counts.astype(np.float32)
        file["obs/paul15_clusters/categories"] = [str(name) for name in categories]
        file["obs/paul15_clusters/codes"] = codes.astype(np.int8)
        file["uns/iroot"] = root
    return content.getvalue()


# --- the real files ---------------------------------------------------------------------------------------------------


def test_every_second_cluster_is_for_training_with_the_papers_sizes():
    train = paul15(folder=real_data(SAVED))
    assert [len(task) for task in train.tasks] == [153, 69, 373, 164, 9, 43, 246, 180, 167, 63]
    assert [task.name for task in train.tasks][:2] == ["10GMP", "12Baso"]
    assert (train.in_size, train.out_size) == (100, 1)


def test_one_cluster_is_for_tests_with_a_fifth_as_context():
    test = paul15("test", folder=real_data(SAVED))
    (split,) = test.splits
    assert (test[0].name, len(test[0]), len(split.context), len(split.target)) == ("2Ery", 329, 66, 263)


def test_units_are_those_of_all_cells():
    home = real_data(SAVED)
    columns = paul15(folder=home).columns
    with np.load(home / SAVED) as saved:
        assert columns is not None
        np.testing.assert_allclose(columns.x_scale, saved["X_pca"].astype(float).std(0, ddof=1))
        np.testing.assert_allclose(columns.y_shift, saved["dpt_pseudotime"].astype(float).mean())
        scaled = paul15(folder=home).standardised()[0]
        mine = saved["cluster"] == "10GMP"
        expected = saved["dpt_pseudotime"].astype(float)
        expected = (expected[mine] - expected.mean()) / expected.std(ddof=1)
    np.testing.assert_allclose(scaled.y[:, 0], expected)


def test_components_of_the_counts_are_the_saved_ones_up_to_sign():
    home = real_data(COUNTS)
    counts = read_counts(home / COUNTS)
    assert (counts.counts.shape, counts.counts.sum(), counts.root) == ((2730, 3451), 6_083_492, 840)
    found = principal_components(counts.counts)
    with np.load(real_data(SAVED) / SAVED) as saved:
        expected = saved["X_pca"].astype(float)
        np.testing.assert_array_equal(counts.clusters, saved["cluster"])
    # The saved ones were computed in float32, where components of nearly the same variance mix a little.
    products = np.abs((found * expected).mean(0))
    np.testing.assert_allclose(products / (found.std(0) * expected.std(0)), 1.0, atol=1e-6)
    np.testing.assert_allclose(found.std(0), expected.std(0), rtol=1e-5)


# --- any files --------------------------------------------------------------------------------------------------------


def test_components_are_those_of_a_singular_value_decomposition():
    counts = np.random.default_rng(0).poisson(2.0, size=(12, 7)).astype(float)
    counts[:, 4] = 3.0  # does not vary
    scaled = counts - counts.mean(0)
    scaled[:, [0, 1, 2, 3, 5, 6]] /= counts[:, [0, 1, 2, 3, 5, 6]].std(0, ddof=1)
    left, values, _ = np.linalg.svd(scaled, full_matrices=False)
    found = principal_components(counts, 4)
    np.testing.assert_allclose(np.abs(found), np.abs(left * values)[:, :4], atol=1e-12)
    assert all(column[np.abs(column).argmax()] > 0 for column in found.T)


@pytest.mark.parametrize("number", [0, 8])
def test_more_components_than_there_are_are_refused(number):
    with pytest.raises(ValueError, match="expected 1 to 7 components"):
        principal_components(np.ones((9, 7)), number)


def test_the_seed_chooses_the_context(tmp_path):
    contexts = [paul15("test", seed=seed, folder=put(tmp_path)).splits[0].context.x for seed in (0, 0, 1)]
    assert torch.equal(contexts[0], contexts[1])
    assert not torch.equal(contexts[0], contexts[2])


def test_a_trained_model_has_the_units_of_all_cells_not_of_the_training_clusters(tmp_path):
    train = paul15(folder=put(tmp_path))
    model = bnnp.BNNP(3, 1, hidden=(3,))
    bnnp.fit(model, train, objective=bnnp.objectives.PPAVI(2), steps=1, progress=False)
    np.testing.assert_allclose(model.columns.y_shift, [arrays()["dpt_pseudotime"].mean()], rtol=1e-6)
    np.testing.assert_allclose(model.columns.x_scale, arrays()["X_pca"].std(0, ddof=1), rtol=1e-6)


def test_from_counts_the_components_are_computed_once_and_kept_in_the_cache(web, tmp_path, monkeypatch):
    made = tmp_path / "mine" / "paul15"
    made.mkdir(parents=True)
    content = h5ad(np.random.default_rng(0).poisson(2.0, size=(40, 120)))
    (made / "paul15.h5ad.gz").write_bytes(gzip.compress(content, mtime=0))
    calls = []
    monkeypatch.setattr(cells, "diffusion_pseudotime", lambda x, root: calls.append(root) or np.arange(40.0))
    monkeypatch.setattr(cells, "principal_components", lambda counts: principal_components(counts, 5))
    first, again = (paul15(folder=made.parent) for _ in range(2))
    assert calls == [3]
    assert (tmp_path / "cache" / SAVED).is_file()
    assert [p.name for p in made.iterdir()] == ["paul15.h5ad.gz"]
    assert torch.equal(first[0].x, again[0].x)
    assert first[0].y[:, 0].tolist() == [0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0, 32.0, 36.0]


def test_pseudotime_is_asked_of_scanpy_with_its_defaults(monkeypatch):
    asked = []

    class Data(SimpleNamespace):
        def __init__(self, x, obsm):
            super().__init__(x=x, obsm=obsm, uns={}, obs={})

    def dpt(data) -> None:
        asked.append(("dpt", data.uns["iroot"]))
        data.obs["dpt_pseudotime"] = data.obsm["X_pca"][:, 0]

    scanpy = SimpleNamespace(
        pp=SimpleNamespace(neighbors=lambda data, use_rep: asked.append(("neighbors", use_rep))),
        tl=SimpleNamespace(diffmap=lambda data: asked.append(("diffmap",)), dpt=dpt),
    )
    monkeypatch.setitem(sys.modules, "scanpy", scanpy)  # pyright: ignore[reportArgumentType]
    monkeypatch.setitem(sys.modules, "anndata", SimpleNamespace(AnnData=Data))  # pyright: ignore[reportArgumentType]
    values = cells.diffusion_pseudotime(np.ones((4, 2)), 2)
    assert asked == [("neighbors", "X_pca"), ("diffmap",), ("dpt", 2)]
    assert values.tolist() == [1.0] * 4


def test_without_scanpy_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "scanpy", None)
    with pytest.raises(ImportError, match=r"pseudotime from counts needs scanpy .*pip install 'bnnp\[cells\]'"):
        cells.diffusion_pseudotime(np.ones((4, 2)), 0)


def test_without_a_connection_the_error_says_where_to_get_the_counts(web, tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        paul15()
    for part in (str(tmp_path / "cache" / COUNTS), _COUNTS.url, "BNNP_DATA", "no route to host"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dpt_pseudotime": None}, "expected an npz file with X_pca, dpt_pseudotime and cluster"),
        ({"dpt_pseudotime": np.ones(39)}, r"got arrays of shapes .*\(39,\)"),
        ({"X_pca": np.ones(40)}, r"expected \(cells, components\)"),
        ({"cluster": np.array(["1Ery"] * 40)}, "got the clusters 1Ery, expected 2Ery"),
        ({"dpt_pseudotime": np.full(40, np.inf)}, "got inf at row 0"),
        ({"cluster": NAMES.astype(object)}, "expected an npz file"),
    ],
    ids=["no pseudotime", "short", "vector", "clusters", "infinite", "pickle"],
)
def test_bad_components_are_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        paul15(folder=put(tmp_path, **changes))


@pytest.mark.parametrize(
    "damage", [lambda d: d[:100], lambda d: b"", lambda d: b"<html>"], ids=["cut", "empty", "page"]
)
def test_damaged_files_are_refused_by_name(web, tmp_path, damage):
    path = put(tmp_path / "a") / SAVED
    path.write_bytes(damage(path.read_bytes()))
    counts = tmp_path / "b" / "paul15" / "paul15.h5ad"
    counts.parent.mkdir(parents=True)
    counts.write_bytes(damage(h5ad(np.ones((40, 3)))))
    for file, kind in ((path, "npz"), (counts, "h5ad")):
        with pytest.raises(ValueError, match=f"expected an {kind} file") as caught:
            paul15(folder=file.parent.parent)
        assert str(file) in str(caught.value)


def test_a_file_of_other_cells_is_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "other.h5ad"
    with h5py.File(path, "w") as file:
        file["X"] = np.ones((3, 2))
    with pytest.raises(ValueError, match="obs/paul15_clusters"):
        read_counts(path)
