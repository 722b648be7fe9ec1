"""The page in a real browser: from a server, and as one file without one."""

import re

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

import bnnp
from bnnp.app import Gallery, export
from bnnp.app.pictures import EFFORT
from support.browser import Reader, chromium, resize
from support.page import served

PATIENCE = 300  # seconds, for other inference on a busy machine


@pytest.fixture(scope="module")
def browser():
    own = chromium()
    yield own
    own.quit()


@pytest.fixture(scope="module")
def gallery():
    shapes = [(np.linspace(-1, 1, 9), np.sin(3 * np.linspace(-1, 1, 9) + shift)) for shift in range(4)]
    tasks = bnnp.tasks.from_arrays(shapes, names=["ann", "bob", "cleo", "dan"])
    models = {"first": bnnp.BNNP(1, 1, hidden=(12, 12), seed=0), "second": bnnp.BNNP(1, 1, hidden=(8,), seed=1)}
    models["second"].set_prior_learnability(0.5)
    return Gallery(models, tasks)


@pytest.fixture(scope="module")
def addresses(gallery, tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(export(gallery))
    with served(gallery) as port:
        yield {"server": f"http://127.0.0.1:{port}/", "file": file.as_uri()}


@pytest.fixture(params=["server", "file"])
def page(request, browser, addresses):
    browser.set_network_conditions(offline=request.param == "file", latency=0, throughput=-1)
    reader = Reader(browser, addresses[request.param])
    yield reader
    assert reader.complaints() == []


@pytest.fixture
def from_server(browser, addresses):
    browser.set_network_conditions(offline=False, latency=0, throughput=-1)
    reader = Reader(browser, addresses["server"])
    yield reader
    assert reader.complaints() == []


def test_points_are_added_dragged_deleted_and_brought_back(page):
    before = page.picture()["mean"]
    page.click_at(0.3, 0.3)
    page.click_at(0.7, 0.6)
    assert len(page.points()) == 2
    assert page.picture()["mean"] != before
    first = page.points()[0]
    page.drag(".point[data-index='0']", 60, 40)
    moved = page.points()[0]
    assert moved["x"][0] > first["x"][0]
    assert moved["y"][0] < first["y"][0]
    ActionChains(page.browser).double_click(page.find(".point[data-index='1']")).perform()
    page.settle()
    assert page.points() == [moved]
    page.find("#undo").click()
    page.settle()
    assert len(page.points()) == 2


def test_a_point_that_is_dragged_out_is_deleted(page):
    page.click_at(0.5, 0.2)
    top = page.find("svg.plot").location["y"]
    ActionChains(page.browser, duration=50).click_and_hold(page.find(".point")).move_by_offset(
        0, -top - 20
    ).release().perform()
    page.settle()
    assert page.points() == []


def test_the_keyboard_alone_is_enough(page):
    page.find("svg.plot[tabindex]").send_keys("a")
    page.settle()
    (first,) = page.points()
    page.find(".point").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_UP)
    page.settle()
    (moved,) = page.points()
    assert moved["x"][0] > first["x"][0]
    assert moved["y"][0] > first["y"][0]
    page.find(".point").send_keys(Keys.DELETE)
    page.settle()
    assert page.points() == []
    page.find("body").send_keys(Keys.CONTROL + "z")
    page.settle()
    assert page.points() == [moved]


def test_a_finger_adds_and_moves_a_point(page):
    box = page.js("const r = page.svg().getBoundingClientRect(); return [r.left, r.top, r.width, r.height]")
    start = [box[0] + 0.4 * box[2], box[1] + 0.4 * box[3]]
    places = [start, [start[0] + 30, start[1] + 30]]
    page.browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    for kind, touches in (("touchStart", [places[0]]), ("touchMove", [places[1]]), ("touchEnd", [])):
        found = {"type": kind, "touchPoints": [{"x": x, "y": y} for x, y in touches]}
        page.browser.execute_cdp_cmd("Input.dispatchTouchEvent", found)
    page.settle()
    page.browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
    (point,) = page.points()
    assert point["x"][0] == pytest.approx(
        page.js(f"return page.plots[0].plot.x.inverse({places[1][0] - box[0]})"), abs=1e-3
    )


def test_a_subject_is_shown_predicted_and_scored(page):
    Select(page.find("#subject")).select_by_visible_text("cleo")
    page.wait("return page.state.subject === 'cleo'")
    page.settle()
    assert len(page.points()) == 5
    assert page.js("return page.state.hidden.length") == 4
    page.find("[data-hidden='0']").click()
    page.settle()
    assert len(page.points()) == 6
    assert re.search(r"6 points, 3 hidden", page.find("#count").text)
    page.find("#calibrate").click()
    page.wait("return document.querySelector('#calibration dl') !== null")
    assert "90 % band" in page.find("#calibration").text


def test_prior_standard_prior_and_online_updates_stand_beside(page):
    page.click_at(0.4, 0.4)
    page.find("#online").click()
    page.click_at(0.6, 0.7)
    assert page.picture("online")["mean"] != page.picture()["mean"]
    page.find("#show-prior").click()
    page.settle()
    assert page.picture("prior")["mean"] != page.picture()["mean"]
    assert len(page.browser.find_elements("css selector", "svg.plot")) == 2
    Select(page.find("#model")).select_by_index(1)
    page.settle()
    assert "learnable share 0.5" in page.find("#summary").text


def test_another_method_is_compared_and_starts_anew(from_server, monkeypatch):
    monkeypatch.setitem(EFFORT, "steps", 100)
    page = from_server
    page.click_at(0.4, 0.4)
    page.find("#show-standard").click()
    Select(page.find("#method")).select_by_value("ensemble")
    page.settle()
    assert not page.browser.find_elements("css selector", ".of-standard .mean")  # not before it is inferred
    page.wait("return !!page.jobs.picture('learned') && !!page.jobs.picture('standard')", PATIENCE)
    assert "by ensemble" in page.find("#legend").text
    assert page.browser.find_elements("css selector", ".of-standard .mean")
    assert len(page.browser.find_elements("css selector", ".still-point")) == 1
    page.find("#show-standard").click()
    page.click_at(0.6, 0.6)
    assert page.js("return !page.jobs.picture('learned')")
    page.wait("return !!page.jobs.picture('learned')", PATIENCE)


def test_the_python_code_gives_the_same_numbers(from_server, gallery, tmp_path):
    page = from_server
    page.click_at(0.3, 0.3)
    page.click_at(0.7, 0.6)
    saved = gallery.model(0).save(tmp_path / "first.bnnp")
    page.js(f"page.state.hello.models[0].name = {str(saved)!r}")
    names: dict = {}
    exec(page.js("return page.python()"), names)
    assert np.array_equal(names["mean"].T, page.picture()["mean"])
    assert np.array_equal(names["low"].T, page.picture()["low"])
    assert np.array_equal(names["functions"].transpose(0, 2, 1), page.picture()["functions"])
    table = page.js("return page.csv()").splitlines()
    assert len(table) == 1 + len(names["mean"])
    assert table[0].startswith("x0,y0_mean,y0_low,y0_high,y0_function_1,")
    assert float(table[1].split(",")[1]) == names["mean"][0, 0]


def test_server_and_file_give_the_same_picture(browser, addresses):
    browser.set_network_conditions(offline=False, latency=0, throughput=-1)
    found = {}
    for name, address in addresses.items():
        page = Reader(browser, address)
        page.js("page.state.add({x: [0.25], y: [0.5]}); page.state.add({x: [-0.5], y: [0.1]})")
        page.settle()
        found[name] = page.picture()
    for name in ("mean", "low", "high", "functions"):
        off = np.abs(np.array(found["server"][name]) - np.array(found["file"][name])).max()
        assert off < 1e-4, name


@pytest.mark.parametrize("dark", [False, True])
def test_a_small_screen_has_room_for_all(browser, addresses, dark):
    resize(browser, 400, 800, dark=dark)
    page = Reader(browser, addresses["file"])
    assert page.js("return document.documentElement.scrollWidth") <= 400
    page.click_at(0.5, 0.5)
    assert len(page.points()) == 1
    resize(browser, 1280, 900)
    assert page.complaints() == []


@pytest.mark.parametrize("kind", ["map", "covariates", "two outputs", "binary", "classes"])
def test_other_data_have_their_own_figures(browser, tmp_path, kind):
    models = {
        "map": bnnp.BNNP(2, 1, hidden=(8,)),
        "covariates": bnnp.BNNP(3, 1, hidden=(8,)),
        "two outputs": bnnp.BNNP(1, 2, hidden=(8,)),
        "binary": bnnp.BNNP(1, 1, hidden=(8,), likelihood=bnnp.Bernoulli()),
        "classes": bnnp.BNNP(1, 3, hidden=(8,), likelihood=bnnp.Categorical(3)),
    }
    file = tmp_path / "page.html"
    file.write_text(export(Gallery({kind: models[kind]})))
    page = Reader(browser, file.as_uri())
    page.click_at(0.5, 0.25)
    (point,) = page.points()
    assert len(point["x"]) == models[kind].in_size
    assert len(point["y"]) == models[kind].y_size
    expected = {"binary": [1], "classes": [2]}
    assert kind not in expected or point["y"] == expected[kind]
    assert page.complaints() == []
