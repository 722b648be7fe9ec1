"""The page's server in a thread, and messages to it."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

from websockets.sync.client import ClientConnection, connect

from bnnp.app.gallery import Gallery
from bnnp.app.server import listening, server


@contextlib.contextmanager
def served(gallery: Gallery) -> Iterator[int]:
    """The port of a server that runs meanwhile."""
    own, running = listening(0), server(gallery)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [own]}, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    try:
        yield own.getsockname()[1]
    finally:
        running.should_exit = True
        thread.join(10)


@contextlib.contextmanager
def visit(port: int, **choices: Any) -> Iterator[ClientConnection]:
    """A connection like the page's own, after its greeting."""
    with connect(f"ws://127.0.0.1:{port}/talk", origin=f"http://127.0.0.1:{port}", max_size=None, **choices) as page:  # pyright: ignore
        assert json.loads(page.recv())["kind"] == "hello"
        yield page


def ask(page: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
    """Send a message, and the answer to it."""
    page.send(json.dumps(message))
    while True:
        reply = json.loads(page.recv(timeout=60))
        if reply["kind"] != "progress" and reply["id"] in (message.get("id"), None):
            return reply


def question(x: list, y: list, **more: Any) -> dict[str, Any]:
    """A message that asks for a picture over one input from -2 to 2."""
    fixed = [0.0] * (len(x[0]) if x else 1)
    axes = [{"input": 0, "low": -2, "high": 2, "count": 11}]
    asked = {"model": 0, "x": x, "y": y, "seed": 3, "samples": 8, "functions": 4, "axes": axes, "fixed": fixed}
    return {"kind": "picture", "of": "posterior", "id": 1, **asked, **more}
