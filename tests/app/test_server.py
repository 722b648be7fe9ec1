"""The page's server: its pictures have the library's numbers, and wrong, hostile or stale messages do no harm."""

import json
import socket
import threading

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

import bnnp
from bnnp.app import pictures
from bnnp.app.gallery import Gallery
from support.page import ask, question, served, visit

X, Y = [[-1.0], [0.5], [1.5]], [[0.3], [-0.2], [0.8]]


@pytest.fixture(scope="module")
def model():
    return bnnp.BNNP(1, 1, hidden=(8, 8), seed=0)


@pytest.fixture(scope="module")
def port(model):
    data = [(np.linspace(-1, 1, 6), np.sin(np.linspace(-1, 1, 6) + shift)) for shift in range(4)]
    tasks = bnnp.tasks.from_arrays(data, names=["a", "b", "c", "d"])
    with served(Gallery({"small": model}, tasks)) as port:
        yield port


def test_a_picture_is_what_the_library_predicts(model, port):
    with visit(port) as page:
        found = ask(page, question(X, Y))
    pred = model.condition(np.array(X), np.array(Y), num_samples=8, seed=3).predict(np.linspace(-2, 2, 11))
    low, high = pred.interval(0.9)
    for name, values in {"mean": pred.mean, "low": low, "high": high, "deviation": pred.function_std}.items():
        assert np.array_equal(found[name][0], values[:, 0]), name
    assert np.array_equal(np.array(found["functions"])[:, 0], pred.samples[:4, :, 0])


def test_online_updates_and_priors_are_the_librarys(model, port):
    grid = np.linspace(-2, 2, 11)
    with visit(port) as page:
        online = ask(page, question(X, Y, of="online", first=1))
        prior, standard = (ask(page, question(X, Y, of=of)) for of in ("prior", "standard"))
    post = model.condition(X[:1], Y[:1], num_samples=8, seed=3)
    for x, y in zip(X[1:], Y[1:], strict=True):
        post = post.update([x], [y])
    assert np.array_equal(online["mean"][0], post.predict(grid).mean[:, 0])
    empty = np.zeros((0, 1))
    assert np.array_equal(
        prior["mean"][0], model.condition(empty, empty, num_samples=8, seed=3).predict(grid).mean[:, 0]
    )
    assert prior["mean"] == standard["mean"]  # an untrained model has the standard prior


def test_the_standard_prior_is_not_the_learned_one(model):
    moved = bnnp.BNNP(1, 1, hidden=(8, 8), seed=0)
    moved.prior.assign_layer(2, *(values.new_full((9, 1), 2.0) for values in moved.prior.sample(1)[:2]))
    gallery = Gallery({"moved": moved})
    prior, standard = (pictures.picture(gallery, question([], [], of=of)) for of in ("prior", "standard"))
    same = pictures.picture(Gallery({"small": model}), question([], [], of="prior"))
    assert prior["mean"] != standard["mean"]
    assert standard["mean"] == same["mean"]


def test_subjects_and_calibration(port):
    with visit(port) as page:
        found = ask(page, {"kind": "subject", "id": 4, "number": 1})
        scores = ask(page, {"kind": "calibration", "id": 5, "model": 0, "seed": 0})
    assert found["name"] == "b"
    assert len(found["x"]) == 6
    assert scores["tasks"] == 4
    assert 0 <= scores["scores"]["coverage_90"]["mean"] <= 1


def test_the_true_function_passes_through_the_points_of_its_data_set(model):
    source = bnnp.tasks.gp(noise=0.0, points=(9, 9), length_scale=2.0)
    found = pictures.subject(Gallery({"small": model}, source), {"number": 3})
    values = np.interp(np.ravel(found["x"]), found["truth"]["x"], found["truth"]["y"])
    np.testing.assert_allclose(values, np.ravel(found["y"]), atol=2e-3)
    table = bnnp.tasks.from_arrays([(X, Y)])
    assert pictures.subject(Gallery({"small": model}, table), {"number": 0})["truth"] is None


def test_another_method_reports_progress_and_its_warnings(port, monkeypatch):
    monkeypatch.setitem(pictures.EFFORT, "steps", 200)
    with visit(port) as page:
        page.send(json.dumps(question(X, Y, kind="infer", of="learned", method="mfvi")))
        kinds = []
        while "infer" not in kinds:
            reply = json.loads(page.recv(timeout=60))
            kinds.append(reply["kind"])
    assert kinds[0] == "progress"
    assert len(reply["mean"][0]) == 11
    assert isinstance(reply["warnings"], list)


def test_cancelled_work_ends_and_is_not_answered(port):
    """One thread does all long work: calibration is answered after the inference has ended, which says nothing."""
    with visit(port) as page:
        page.send(json.dumps(question(X, Y, kind="infer", of="learned", method="mfvi", id=7)))
        assert json.loads(page.recv(timeout=60))["kind"] == "progress"
        page.send(json.dumps({"kind": "cancel"}))
        page.send(json.dumps({"kind": "calibration", "id": 8, "model": 0, "seed": 0}))
        kinds = []
        while "calibration" not in kinds:
            kinds.append(json.loads(page.recv(timeout=120))["kind"])
    assert set(kinds) <= {"progress", "calibration"}


def test_inference_is_cancelled_without_ending_calibration(port):
    with visit(port) as page:
        page.send(json.dumps(question(X, Y, kind="infer", of="learned", method="mfvi", id=7)))
        page.send(json.dumps({"kind": "calibration", "id": 8, "model": 0, "seed": 0}))
        page.send(json.dumps({"kind": "cancel"}))
        while (reply := json.loads(page.recv(timeout=120)))["kind"] == "progress":
            pass
    assert (reply["kind"], reply["id"]) == ("calibration", 8)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "JSON"),
        ("[1]", "kind"),
        ('{"kind": "picture"}', "of"),
        ('{"kind": "dance"}', "kind"),
        (json.dumps({**question(X, Y), "x": [[1.0, 2.0]]}), "x"),
        (json.dumps(question(X, Y[:1])), "x and y"),
        (json.dumps(question(X, [[0.0], [float("nan")], [1.0]])), "finite"),
        (json.dumps(question(X, Y, samples=10**9)), "samples"),
        (json.dumps(question(X, Y, seed=-1)), "seed"),
        (json.dumps(question(X, Y, model=1)), "model"),
        (json.dumps(question(X, Y, axes=[{"input": 0, "low": 0, "high": 1, "count": 10**6}])), "count"),
        (json.dumps(question(X, Y, axes=[{"input": 3, "low": 0, "high": 1, "count": 2}])), "input"),
        (json.dumps(question(X, Y, fixed=[])), "fixed"),
        (json.dumps(question(X, Y, of="oracle")), "oracle"),
        (json.dumps(question(X, Y, kind="infer", of="learned", method="magic")), "method"),
        ("[" * 5000, "JSON"),
    ],
)
def test_malformed_messages_are_refused_and_the_page_goes_on(port, text, word):
    with visit(port) as page:
        page.send(text)
        reply = json.loads(page.recv(timeout=60))
        assert reply["kind"] == "error"
        assert word in reply["message"]
        assert ask(page, question(X, Y, id=2))["kind"] == "picture"


def test_a_huge_message_closes_its_connection_alone(port):
    with visit(port) as other:
        with visit(port) as page:
            page.send("x" * 300_000)
            with pytest.raises(ConnectionClosed):
                page.recv(timeout=10)
        assert ask(other, question(X, Y))["kind"] == "picture"


@pytest.mark.parametrize("origin", ["http://example.org", "http://127.0.0.1:1", None])
def test_pages_of_other_origins_are_refused(port, origin):
    with pytest.raises(InvalidStatus), connect(f"ws://127.0.0.1:{port}/talk", origin=origin):
        pass


def test_other_hosts_are_refused(port):
    reply = raw(port, b"GET / HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 400")
    assert raw(port, b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 200")


def raw(port: int, words: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as own:
        own.sendall(words)
        return own.recv(100)


def test_a_dying_page_leaves_the_server_well(port):
    with visit(port) as page:
        page.send(json.dumps(question(X, Y, kind="infer", of="learned", method="mfvi")))
        page.send(json.dumps(question(X, Y)))
        page.socket.close()
    with visit(port) as other:
        assert ask(other, question(X, Y))["kind"] == "picture"


def test_stale_messages_are_dropped_and_the_last_is_answered(port):
    with visit(port) as page:
        for number in range(200):
            page.send(json.dumps(question(X, [[0.3], [-0.2], [number / 100]], id=number)))
        answers = [json.loads(page.recv(timeout=60))]
        while answers[-1]["id"] < 199:
            answers.append(json.loads(page.recv(timeout=60)))
        assert len(answers) < 150
        assert ask(page, question(X, [[0.3], [-0.2], [1.99]]))["mean"] == answers[-1]["mean"]


def test_many_pages_at_once_get_their_own_last_picture(model, port):
    wrong = []

    def drag(number: int) -> None:
        with visit(port) as page:
            for step in range(20):
                page.send(json.dumps(question(X, [[0.3], [-0.2], [number + step / 100]], id=step)))
            while (reply := json.loads(page.recv(timeout=60)))["id"] != 19:
                pass
            y = [[0.3], [-0.2], [number + 0.19]]
            pred = model.condition(X, y, num_samples=8, seed=3).predict(np.linspace(-2, 2, 11))
            if not np.allclose(reply["mean"][0], pred.mean[:, 0], rtol=0, atol=1e-12):
                wrong.append(number)

    threads = [threading.Thread(target=drag, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_galleries_refuse_models_that_do_not_fit(model):
    other = bnnp.BNNP(2, 1, hidden=(4,))
    with pytest.raises(ValueError, match="same columns"):
        Gallery({"one": model, "two": other})
    with pytest.raises(ValueError, match="no prior"):
        Gallery({"peer": bnnp.neural_processes.CNP(1, 1)})  # pyright: ignore
    with pytest.raises(ValueError, match="those of the model"):
        Gallery({"two": other}, bnnp.tasks.sawtooth())
