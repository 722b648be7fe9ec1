"""Images as tasks: what is read from files, where files are looked for, and every bad file."""

import dataclasses
import gzip
import hashlib
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import bnnp
from bnnp._core.files import cache_folder
from bnnp.tasks import mnist, pixel_grid
from bnnp.tasks.datasets.folder import DataFile, data_path
from bnnp.tasks.datasets.images import Images, idx_array
from conftest import real_data

LABELS = np.array([3, 5, 3, 0, 9], dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    """A file of the idx format."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def put(home: Path, images: bytes, labels: bytes, split: str = "train", compressed: bool = True) -> Path:
    """The two files of a split in the sub-folder `mnist`."""
    prefix = "train" if split == "train" else "t10k"
    (home / "mnist").mkdir(parents=True, exist_ok=True)
    for name, data in ((f"{prefix}-images-idx3-ubyte", images), (f"{prefix}-labels-idx1-ubyte", labels)):
        path = home / "mnist" / (name + ".gz" * compressed)
        path.write_bytes(gzip.compress(data) if compressed else data)
    return home


def some_images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (len(LABELS), 28, 28), dtype=np.uint8)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return put(tmp_path, idx(some_images()), idx(LABELS))


# --- tasks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", [True, False])
def test_values_are_the_pixels_row_by_row_between_0_and_1(tmp_path, compressed):
    source = mnist(folder=put(tmp_path, idx(some_images()), idx(LABELS), compressed=compressed))
    assert (len(source), source.in_size, source.out_size) == (5, 2, 1)
    for index, image in enumerate(some_images()):
        task = source[index]
        assert task.x.shape == (784, 2)
        np.testing.assert_allclose(task.y, image.reshape(-1, 1) / 255)
    assert (source[0].name, source[1].name) == ("train 0, digit 3", "train 1, digit 5")


def test_the_first_input_grows_to_the_right_and_the_second_to_the_top(tmp_path):
    images = np.zeros((1, 28, 28))
    images[0, 0, 27] = 255  # top right
    task = mnist(folder=put(tmp_path, idx(images), idx(LABELS[:1])))[0]
    assert task.x[task.y[:, 0] == 1].tolist() == [[1.0, 1.0]]
    assert task.x[0].tolist() == [-1.0, 1.0]
    assert task.x[1, 0] > task.x[0, 0]
    assert task.x[28, 1] < task.x[0, 1]


@pytest.mark.parametrize("side", [28, 14, 7, 4, 2])
def test_smaller_images_are_averages_of_blocks(home, side):
    source, block = mnist(side=side, folder=home), 28 // side
    image = source.to_image(source[1].y)
    for row, column in ((0, 0), (side - 1, 0), (side // 2, side - 1)):
        part = some_images()[1, block * row : block * (row + 1), block * column : block * (column + 1)]
        assert image[row, column] == pytest.approx(part.mean() / 255)


def test_binary_values_say_whether_the_average_is_above_one_half(home):
    grey, binary = mnist(side=14, folder=home)[2], mnist(side=14, binary=True, folder=home)[2]
    assert set(binary.y.flatten().tolist()) == {0.0, 1.0}
    assert torch.equal(binary.y, (grey.y > 0.5).double())


def test_digits_restrict_the_images_and_keep_their_numbers(home):
    source = mnist(digits=(3, 9), folder=home)
    assert [source[i].name for i in range(3)] == ["train 0, digit 3", "train 2, digit 3", "train 4, digit 9"]
    np.testing.assert_array_equal(source.to_image(source[1].y), some_images()[2] / 255)


def test_an_image_comes_back_from_predictions_at_all_pixels(home):
    source = mnist(side=14, folder=home)
    model = bnnp.BNNP(2, 1, hidden=(3,), likelihood=bnnp.Bernoulli())
    predictive = model.condition(source[0].x[:9], source[0].y[:9], num_samples=4).predict(source.coordinates)
    assert source.to_image(predictive.mean).shape == (14, 14)
    assert source.to_image(predictive.samples)[3, 1, 2] == predictive.samples[3, 16, 0]


def test_a_model_of_images_can_be_asked_at_any_resolution(home):
    source, model = mnist(folder=home), bnnp.BNNP(2, 1, hidden=(3,), likelihood=bnnp.Bernoulli())
    fine = pixel_grid(100)
    assert fine.shape == (10_000, 2)
    assert fine[[0, 99, -1]].tolist() == [[-1.0, 1.0], [1.0, 1.0], [1.0, -1.0]]
    assert torch.equal(pixel_grid(28), source.coordinates)
    function = model.prior.functions(1, 0)[0]
    image = source.to_image(function(fine), side=100)
    assert image.shape == (100, 100)
    corners = source.to_image(function(source.coordinates))[[0, 0, -1], [0, -1, -1]]
    np.testing.assert_allclose(image[[0, 0, -1], [0, -1, -1]], corners, rtol=1e-5)


@pytest.mark.parametrize("side", [1, 0, 2.5, "28"])
def test_grids_of_no_size_are_refused(side):
    with pytest.raises(ValueError, match="expected a whole number of at least 2"):
        pixel_grid(side)


@pytest.mark.parametrize("shape", [(784, 1), (196,), (196, 2), (14, 14)])
def test_values_that_are_no_image_are_refused(home, shape):
    with pytest.raises(ValueError, match=r"expected \(\.\.\., 196, 1\)"):
        mnist(side=14, folder=home).to_image(np.zeros(shape))


def test_draws_repeat_no_image_before_all_have_been_drawn_and_follow_the_generator(home):
    source = mnist(folder=home)
    names = [task.name for task in source.draw(10, torch.Generator().manual_seed(0))]
    assert len(set(names[:5])) == len(set(names[5:])) == 5
    assert names == [task.name for task in source.draw(10, torch.Generator().manual_seed(0))]
    assert names != [task.name for task in source.draw(10, torch.Generator().manual_seed(1))]


def test_pixels_stay_bytes_and_the_source_prints_short(home):
    source = mnist(side=14, digits=[5], folder=home)
    assert source.pixels.dtype == np.uint8
    assert repr(source) == "Images(split='train', side=14, binary=False, digits=(5,))"


def test_training_leaves_the_values_and_coordinates_as_they_are(home):
    source = mnist(side=7, binary=True, folder=home)
    model = bnnp.BNNP(2, 1, hidden=(3,), likelihood=bnnp.Bernoulli())
    bnnp.fit(model, source, objective=bnnp.objectives.PPAVI(2), steps=2, progress=False)
    assert model.columns.is_identity()


def test_a_run_on_other_images_does_not_go_on_from_a_checkpoint(home, tmp_path):
    def run(**choices) -> None:
        model = bnnp.BNNP(2, 1, hidden=(3,), likelihood=bnnp.Bernoulli())
        source = mnist(side=7, folder=home, **choices)
        objective = bnnp.objectives.PPAVI(2)
        bnnp.fit(model, source, objective=objective, steps=2, checkpoint=tmp_path / "run", progress=False)

    run(binary=True)
    run(binary=True)
    with pytest.raises(ValueError, match="binary=False"):
        run(binary=False)


# --- bad choices and bad files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"split": "valid"}, "got 'valid', expected 'train' or 'test'"),
        ({"side": 10}, "got 10, expected one of 2, 4, 7, 14, 28"),
        ({"side": 56}, "must divide 28"),
        ({"side": 1}, "got 1"),
        ({"digits": (3, 10)}, r"got \(3, 10\), expected some of 0"),
        ({"digits": ()}, r"got \(\)"),
        ({"digits": "35"}, "got '35'"),
        ({"digits": (7,)}, r"got \(7,\), expected one of those in the file, \[0, 3, 5, 9\]"),
    ],
)
def test_impossible_choices_are_refused(home, choices, message):
    with pytest.raises(ValueError, match=message):
        mnist(**{"folder": home, **choices})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "starts with nothing"),
        (b"PK\x03\x04 something else", "starts with 50 4b 03 04"),
        (idx(some_images())[:-1], "got 3935 bytes, expected 3936"),
        (idx(some_images()) + b"!", "got 3937 bytes, expected 3936"),
        (idx(some_images())[:10], "cut short"),
        (idx(some_images()).replace(b"\x08", b"\x0d", 1), "00 00 0d"),
    ],
)
def test_files_that_are_no_whole_idx_file_are_refused_by_name(tmp_path, data, message):
    path = tmp_path / "images"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=message) as caught:
        idx_array(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("damage", [lambda d: d[:-20], lambda d: d[:40] + b"\0\0\0" + d[43:], lambda d: b"<html>"])
def test_damaged_compressed_files_are_refused_by_name(home, damage):
    path = home / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="damaged or not compressed") as caught:
        mnist(folder=home)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("images", [some_images()[:4], some_images()[:, :27], some_images()[0]])
def test_images_that_do_not_fit_their_labels_are_refused(tmp_path, images):
    with pytest.raises(ValueError, match="expected as many of each, with 28 x 28 pixels"):
        mnist(folder=put(tmp_path, idx(images), idx(LABELS)))


# --- where files are looked for --------------------------------------------------------------------------------------


def wanted(content: bytes) -> DataFile:
    return DataFile("some", "numbers", "https://example.org/data", hashlib.sha256(content).hexdigest())


def test_the_argument_goes_before_the_variable_and_the_variable_before_the_cache(web, tmp_path, monkeypatch):
    file = wanted(b"content")
    for place in ("argument", "variable", "cache"):
        (tmp_path / place / "some").mkdir(parents=True)
        (tmp_path / place / "some" / "numbers").write_bytes(b"content")
    assert data_path(file).is_relative_to(tmp_path / "cache")
    monkeypatch.setenv("BNNP_DATA", str(tmp_path / "variable"))
    assert data_path(file).is_relative_to(tmp_path / "variable")
    assert data_path(file, tmp_path / "argument").is_relative_to(tmp_path / "argument")
    monkeypatch.setenv("BNNP_DATA", "")
    assert data_path(file).is_relative_to(tmp_path / "cache")


def test_a_download_fills_the_cache_once(web, tmp_path):
    file = wanted(b"content")
    web[file.url] = gzip.compress(b"content")
    path = data_path(file)
    assert path == tmp_path / "cache" / "some" / "numbers.gz"
    assert gzip.decompress(path.read_bytes()) == b"content"
    assert [p.name for p in path.parent.iterdir()] == ["numbers.gz"]
    web.clear()
    assert data_path(file) == path


@pytest.mark.parametrize(
    ("content", "message"),
    [(gzip.compress(b"other", mtime=0), "expected .*; it is not the file it was"), (b"<html>", "gzip")],
    ids=["another file", "a page"],
)
def test_a_download_of_something_else_is_not_kept(web, tmp_path, content, message):
    file = wanted(b"content")
    web[file.url] = content
    with pytest.raises(ValueError, match=message):
        data_path(file)
    assert not (tmp_path / "cache").exists()


def test_a_file_that_is_not_compressed_is_downloaded_as_it_is(web, tmp_path):
    file = dataclasses.replace(wanted(b"content"), compressed=False)
    assert file.url == "https://example.org/data/numbers"
    with pytest.raises(FileNotFoundError, match=r"some/numbers: there is no such file, and the download failed"):
        data_path(file)
    web[file.url] = b"other"
    with pytest.raises(ValueError, match="it is not the file it was"):
        data_path(file)
    web[file.url] = b"content"
    assert data_path(file) == tmp_path / "cache" / "some" / "numbers"
    assert data_path(file).read_bytes() == b"content"


def test_without_a_connection_the_error_says_what_was_looked_for_and_where_to_get_it(web, tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        mnist("test")
    for part in (
        str(tmp_path / "cache" / "mnist" / "t10k-images-idx3-ubyte.gz"),
        "no route to host",
        "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-images-idx3-ubyte.gz",
        "BNNP_DATA",
    ):
        assert part in str(caught.value)


def test_a_folder_of_the_users_is_never_written_to(web, tmp_path):
    file = wanted(b"content")
    web[file.url] = gzip.compress(b"content")
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        data_path(file, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", None, ".cache/bnnp"),
        ("linux", "XDG_CACHE_HOME", "elsewhere/bnnp"),
        ("darwin", None, "Library/Caches/bnnp"),
        ("win32", "LOCALAPPDATA", "elsewhere/bnnp"),
    ],
)
def test_the_cache_lies_where_the_platform_keeps_caches(monkeypatch, tmp_path, platform, variable, expected):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    assert cache_folder() == tmp_path / expected


# --- the real files --------------------------------------------------------------------------------------------------


def real(split: str, **choices) -> Images:
    return mnist(split, folder=real_data("mnist/train-images-idx3-ubyte.gz"), **choices)


@pytest.mark.parametrize(
    ("split", "counts", "first"),
    [
        ("train", [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949], [5, 0, 4, 1, 9]),
        ("test", [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009], [7, 2, 1, 0, 4]),
    ],
)
def test_mnist_has_its_known_sizes_and_first_labels(split, counts, first):
    source = real(split)
    np.testing.assert_array_equal(np.bincount(source.labels), counts)
    assert source.labels[:5].tolist() == first
    assert len(source) == sum(counts)


def test_mnist_has_its_known_mean_and_spread():
    pixels = real("train").pixels
    assert pixels.mean() / 255 == pytest.approx(0.1307, abs=1e-4)
    some = pixels[::7] / 255  # images of even and of odd number are by different writers
    assert some.std() == pytest.approx(0.3081, abs=1e-3)
