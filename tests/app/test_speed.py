"""How fast the page is, and whether it still works with many readers. Run it with `pytest -m slow -s tests/app`."""

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import bnnp
from support.browser import Reader, chromium
from support.page import question, visit

pytestmark = pytest.mark.slow

READERS, SECONDS = 50, 60
MOVES = (50, 200)  # the first warm up
MODEL = "zoo:sawtooth"
START = """
page.state.points = Array.from({ length: 20 }, (_, i) => ({ x: [-1.9 + 0.2 * i], y: [Math.sin(i)] }));
page.state.changed("points");
"""
MOVE = """
const [step, done] = arguments;
const look = () => (page.backend.busy || page.backend.waiting.size ? setTimeout(look, 1) : done());
page.state.move(7, [-0.5 + step / 200], [Math.sin(step / 20)]);
look();
"""
TOOK = "return page.timings.map(({ asked, drawn }) => drawn - asked)"


@contextlib.contextmanager
def program(*words: str):
    """The server as a program of its own: its process and its port."""
    command = [sys.executable, "-m", "bnnp", "app", MODEL, "--port", "0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r":(\d+)/", process.stdout.readline())
        assert found is not None
        try:
            yield process, int(found[1])
        finally:
            process.terminate()


def timed(address: str) -> np.ndarray:
    """Milliseconds from a moved point to its picture, 200 times, with 20 points."""
    with chromium() as browser:
        reader = Reader(browser, address)
        for moves in MOVES:
            reader.js(START)
            reader.settle()
            reader.js("page.timings.length = 0")
            for step in range(moves):
                browser.execute_async_script(MOVE, step)
        return np.array(reader.js(TOOK))


def exported(folder: Path) -> str:
    """The address of the page as a file, with the model and 40 data sets in it."""
    file = folder / "page.html"
    words = [sys.executable, "-m", "bnnp", "app", MODEL, "--source", "sawtooth", "--export", str(file)]
    subprocess.run(words, check=True)
    return file.as_uri()


def told(name: str, times: np.ndarray) -> None:
    middle, most, worst = np.quantile(times, [0.5, 0.95, 1])
    print(f"\n{name}: median {middle:.0f} ms, 95 % below {most:.0f} ms, worst {worst:.0f} ms")


def test_a_moved_point_is_drawn_at_once_by_the_server():
    with program() as (process, port):
        before = processor(process.pid)
        times = timed(f"http://127.0.0.1:{port}/")
        spent = (processor(process.pid) - before) / sum(MOVES)
    told("server", times)
    print(f"processor time of the server: {1000 * spent:.0f} ms for each picture")
    assert len(times) == 200
    assert np.median(times) <= 50
    assert times.max() <= 150


def test_a_moved_point_is_drawn_soon_by_the_file(tmp_path):
    times = timed(exported(tmp_path))
    told("file", times)
    assert np.median(times) <= 150


def test_the_standard_prior_given_points_is_inferred_meanwhile():
    """It starts anew when a point moves, and a moved point is drawn although it is at work."""
    with program() as (_, port), chromium() as browser:
        reader = Reader(browser, f"http://127.0.0.1:{port}/")
        reader.js(START)
        reader.find("#show-standard").click()
        reader.wait("return page.jobs.running.standard?.share > 0.05", 300)
        first = reader.js("return page.jobs.running.standard")
        reader.js("page.timings.length = 0")
        browser.execute_async_script(MOVE, 1)
        reader.wait(
            "const { standard } = page.jobs.running; return standard?.id > arguments[0] && standard.share > 0",
            300,
            first["id"],
        )
        second = reader.js("return page.jobs.running.standard")
        began = time.monotonic()
        reader.wait("return !!page.jobs.picture('standard')", 600)
        seconds, moved = time.monotonic() - began, reader.js(TOOK)[0]
        print(f"\nhmc under the standard prior: {seconds:.0f} s; a point that moved while it worked: {moved:.0f} ms")
        assert reader.js("return page.jobs.running.standard.id") == second["id"]
        assert second["share"] < first["share"]
        assert reader.find("#progress").get_attribute("hidden") is not None
        assert browser.find_elements("css selector", ".of-standard .mean")
        assert reader.complaints() == []


def test_it_is_there_within_a_second(tmp_path):
    first = "return page.timings[0].drawn"
    with program("--source", "sawtooth") as (_, port), chromium() as browser:
        for name, address in {"server": f"http://127.0.0.1:{port}/", "file": exported(tmp_path)}.items():
            times = np.array([Reader(browser, address).js(first) for _ in range(10)])
            told(f"first picture after opening, {name}", times)
            assert np.median(times) <= 1000


def test_fifty_readers_drag_for_a_minute():
    model, right, answers = bnnp.load(MODEL), [], []
    grid = np.linspace(-2, 2, 11)

    def drag(number: int, port: int, seconds: float) -> None:
        with visit(port) as page:
            end, asked, last = time.monotonic() + seconds, 0, None
            while time.monotonic() < end:
                asked += 1
                message = question([[-1.0], [0.5]], [[0.3], [number / READERS + asked / 1000]], id=asked)
                page.send(json.dumps(message))
                time.sleep(1 / 30)
                with contextlib.suppress(TimeoutError):
                    last = json.loads(page.recv(timeout=0))
                    answers.append((last["kind"], time.monotonic()))
            while last is None or last["id"] != asked:
                last = json.loads(page.recv(timeout=120))
                answers.append((last["kind"], time.monotonic()))
            pred = model.condition(message["x"], message["y"], num_samples=8, seed=3).predict(grid)
            right.append(np.allclose(last["mean"][0], pred.mean[:, 0], rtol=0, atol=1e-9))

    def everyone(port: int, seconds: float) -> None:
        threads = [threading.Thread(target=drag, args=(number, port, seconds)) for number in range(READERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    with program() as (process, port):
        everyone(port, 20)
        before, early = memory(process.pid), len(answers)
        everyone(port, SECONDS)
        after = memory(process.pid)
        assert process.poll() is None
    kinds = {kind for kind, _ in answers}
    print(f"\n{READERS} readers, {SECONDS} s: {len(answers) - early} pictures, memory {before:.0f} -> {after:.0f} MB")
    assert kinds == {"picture"}
    assert right == [True] * 2 * READERS
    assert len(answers) - early < READERS * SECONDS * 30 / 2  # most messages were stale
    assert after < before + 30


def processor(process: int) -> float:
    """Seconds of processor time that a process has had."""
    user, system = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def memory(process: int) -> float:
    """Megabytes that a process holds."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024
