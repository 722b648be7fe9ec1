"""The server of the page: files and one WebSocket per page, on the loopback address alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from bnnp._core.columns import ExtrapolationWarning
from bnnp.app import pictures, protocol
from bnnp.app.gallery import Gallery
from bnnp.app.pages import TYPES, asset, headers
from bnnp.inference import InferenceWarning

LOOPBACK = "127.0.0.1"
HOSTS = (LOOPBACK, "localhost")
LOG = logging.getLogger("uvicorn.error")
WRONG_ORIGIN = 4403
REPORTS_PER_SECOND = 10


class Cancelled(Exception):
    """The page no longer wants this work."""


@dataclass(eq=False)
class Studio:
    """Models and data sets, with one thread for pictures and one for long work.

    Attributes:
        gallery: What can be shown.
        quick: The thread in which pictures are made, one after the other.
        slow: The thread in which other methods infer.
    """

    gallery: Gallery
    quick: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "pictures"))
    slow: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "inference"))

    def close(self) -> None:
        """End both threads after what they do now."""
        for pool in (self.quick, self.slow):
            pool.shutdown(wait=False, cancel_futures=True)


class Visit:
    """One page that is connected.

    Args:
        studio: Makes the pictures.
        websocket: The connection.
    """

    def __init__(self, studio: Studio, websocket: WebSocket):
        self.studio = studio
        self.websocket = websocket
        self.waiting: dict[str, dict[str, Any]] = {}
        self.arrived = asyncio.Event()
        self.jobs: dict[str, tuple[asyncio.Task, threading.Event]] = {}
        self.writing = asyncio.Lock()

    async def talk(self) -> None:
        """Greet the page and answer it until it leaves."""
        await self.send({"kind": "hello", **self.studio.gallery.describe()})
        answering = asyncio.create_task(self._answer_all())
        try:
            while True:
                await self._receive(await self.websocket.receive_text())
        except (WebSocketDisconnect, KeyError):  # the latter for bytes instead of text
            pass
        finally:
            answering.cancel()
            self._cancel_jobs()

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message, unless the page has left."""
        async with self.writing:
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await self.websocket.send_text(json.dumps(message, allow_nan=False))

    async def _receive(self, text: str) -> None:
        try:
            message = protocol.parse(text)
        except ValueError as error:
            await self.send({"kind": "error", "id": None, "message": str(error)})
            return
        slot = f"{message['kind']} {message.get('of')}"
        if message["kind"] == "cancel":
            self._cancel_jobs("infer")
        elif message["kind"] in ("infer", "calibration"):
            self._start_job(slot, message)
        else:
            self.waiting[slot] = message  # an older one is dropped
            self.arrived.set()

    async def _answer_all(self) -> None:
        while True:
            await self.arrived.wait()
            self.arrived.clear()
            while self.waiting:
                message = self.waiting.pop(next(iter(self.waiting)))
                work = {"picture": pictures.picture, "subject": pictures.subject}[message["kind"]]
                await self._answer(self.studio.quick, message, lambda m=message, w=work: w(self.studio.gallery, m))

    async def _answer(self, pool: ThreadPoolExecutor, message: dict[str, Any], work: Callable[[], Any]) -> None:
        echo = {"kind": message["kind"], "id": message.get("id"), "of": message.get("of")}
        try:
            found = await asyncio.get_running_loop().run_in_executor(pool, work)
            await self.send({**echo, **found})
        except Cancelled:
            pass
        except Exception as error:  # whatever goes wrong, the page is told and the server goes on
            if not isinstance(error, ValueError | ArithmeticError):
                LOG.exception("a picture failed")
            await self.send({**echo, "kind": "error", "message": str(error) or type(error).__name__})

    def _start_job(self, slot: str, message: dict[str, Any]) -> None:
        """Start work in the background, instead of what was there before in the same slot."""
        self._cancel_jobs(slot)
        stop = threading.Event()
        gallery, report = self.studio.gallery, self._reporter(message, stop)

        def work() -> dict[str, Any]:
            if stop.is_set():
                raise Cancelled
            if message["kind"] == "calibration":
                return pictures.calibration(gallery, message)
            return pictures.inferred(gallery, message, report)

        self.jobs[slot] = (asyncio.create_task(self._answer(self.studio.slow, message, work)), stop)

    def _reporter(self, message: dict[str, Any], stop: threading.Event) -> pictures.Progress:
        """A function that tells the page of progress, and ends the work once the page no longer wants it."""
        loop = asyncio.get_running_loop()
        last = 0.0

        def report(done: int, steps: int) -> None:
            nonlocal last
            if stop.is_set():
                raise Cancelled
            if loop.time() - last > 1 / REPORTS_PER_SECOND:
                last = loop.time()
                told = {"kind": "progress", "id": message.get("id"), "done": done, "steps": steps}
                asyncio.run_coroutine_threadsafe(self.send(told), loop)

        return report

    def _cancel_jobs(self, slots: str = "") -> None:
        """End the work of all slots whose names begin so."""
        for name in [name for name in self.jobs if name.startswith(slots)]:
            task, stop = self.jobs.pop(name)
            stop.set()
            task.cancel()


def application(gallery: Gallery) -> Starlette:
    """The page and its WebSocket as a Starlette application. It refuses other hosts and pages of other origins."""
    studio = Studio(gallery)

    async def file(request: Request) -> Response:
        name = request.path_params.get("name") or "page.html"
        if name not in TYPES:
            return Response("there is no such file", 404)
        return Response(asset(name), headers=headers(), media_type=TYPES[name])

    async def connect(websocket: WebSocket) -> None:
        if websocket.headers.get("origin") not in {f"http://{host}" for host in _own_hosts(websocket)}:
            await websocket.close(WRONG_ORIGIN)
            return
        await websocket.accept()
        await Visit(studio, websocket).talk()

    @contextlib.asynccontextmanager
    async def life(_: Starlette):
        yield
        studio.close()

    routes = [Route("/", file), WebSocketRoute("/talk", connect), Route("/{name}", file)]
    middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))]
    return Starlette(routes=routes, middleware=middleware, lifespan=life)


def _own_hosts(websocket: WebSocket) -> list[str]:
    """The names and the port under which this server is reached."""
    return [f"{host}:{websocket.url.port or 80}" for host in HOSTS]


def listening(port: int) -> socket.socket:
    """A socket on the loopback address; port 0 takes a free one.

    Raises:
        ValueError: If another program has the port.
    """
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        own.bind((LOOPBACK, port))
        own.listen()  # so that pages which come early wait instead of being refused
    except OSError as error:
        own.close()
        raise ValueError(f"port: got {port}, which cannot be used ({error.strerror}); give another --port") from None
    return own


def server(gallery: Gallery) -> uvicorn.Server:
    """The server of a gallery, not yet running. It closes connections whose messages are too large."""
    return uvicorn.Server(
        uvicorn.Config(
            application(gallery),
            log_level="warning",
            ws="websockets-sansio",
            ws_max_size=protocol.LARGEST_MESSAGE,
            ws_per_message_deflate=False,  # on one machine, compressing takes longer than sending
            timeout_graceful_shutdown=1,
        )
    )


def serve(gallery: Gallery, port: int) -> None:
    """Serve the page until Ctrl-C.

    Args:
        gallery: Models and data sets.
        port: The port on the loopback address.
    """
    warnings.simplefilter("ignore", InferenceWarning)  # the page shows them
    warnings.simplefilter("ignore", ExtrapolationWarning)  # its figure has a little room beside the data
    own = listening(port)
    for model in gallery.models.values():  # compiled loops are loaded now, so that the first picture does not wait
        model.condition(torch.zeros(2, model.in_size), torch.zeros(2, model.y_size), num_samples=2).predict(
            torch.zeros(2, model.in_size)
        )
    print(f"http://{LOOPBACK}:{own.getsockname()[1]}/  (Ctrl-C ends it)")
    server(gallery).run(sockets=[own])
