"""The laboratory's web server: finds the apps, serves them on localhost, stops when asked.

The apps are marimo notebooks, served in this process behind a front page. Nothing leaves
the machine: the pages carry their own scripts and marimo's update check is off.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from vla import rules
from vla.errors import ArgumentError, missing_package, require_integer
from vla.home import home, too_long

HOST = "127.0.0.1"
LONGEST = 48_000
"""Bytes that the query of an address may have: enough for the longest text of any scene."""


class RuleFile(NamedTuple):
    """A rule file that was loaded, and the names of the rules it brought."""

    path: Path
    names: tuple[str, ...]


rule_files: list[RuleFile] = []
"""Every rule file this process has loaded, so that a page can say which."""


@dataclass(frozen=True)
class App:
    """One app of the laboratory."""

    path: Path
    title: str
    question: str
    """The question the app answers, in one sentence."""

    @property
    def slug(self) -> str:
        """Its place in the address: the file's name without the number that orders it."""
        return re.sub(r"^\d+_", "", self.path.stem).replace("_", "-")


def main(
    *, port: int | None = None, browser: bool = True, rule_file: str | Path | None = None
) -> int:
    """Serve the laboratory until interrupted. Returns the exit status; faults are told in words."""
    try:
        if rule_file is not None:
            load_rules(rule_file)
        listener = listen(port)
    except ArgumentError as error:
        return _fail(str(error))
    with listener:
        try:
            apps = find_apps()
            application = build(apps)
        except ImportError as error:
            return _fail(missing_package(error))
        address = "http://{}:{}/".format(*listener.getsockname()[:2])
        _announce(address, apps if browser else ())
        return _serve(application, listener)


@contextlib.contextmanager
def running(*words: str) -> Iterator[str]:
    """The address of a laboratory in a process of its own, closed afterwards: for measurements.

    Raises ``RuntimeError`` with what it said if it doesn't open.
    """
    command = [sys.executable, "-m", "vla.cli", "lab", "--no-browser", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if " at http" not in line:
                raise RuntimeError(f"the laboratory did not open: {line}")
            yield line.split(" at ")[1].split()[0]
        finally:
            process.terminate()


def load_rules(path: str | Path) -> RuleFile:
    """Load a rule file and remember it for the pages. Raises as :func:`vla.rules.load_file`."""
    loaded = RuleFile(Path(path), tuple(rules.load_file(path)))
    rule_files.append(loaded)
    return loaded


def listen(port: int | None = None) -> socket.socket:
    """A listening socket on localhost, on the given port or on a free one.

    Raises ``ValueError`` when the port is no port, is taken or needs rights this user lacks.
    """
    if port is not None:
        require_integer("port", port, low=1, high=65535)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if os.name == "posix":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port or 0))
        listener.listen(128)
    except OSError as error:
        listener.close()
        wanted = f"a free port ({(error.strerror or str(error)).lower()})"
        remedy = "Choose another, or leave --port out to get a free one."
        raise ArgumentError("port", port, wanted, remedy) from error
    return listener


def apps_folder() -> Path:
    """Where the apps are: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent
    bundled = package / "_apps"
    return bundled if bundled.is_dir() else package.parent / "apps"


def find_apps(folder: Path | None = None) -> list[App]:
    """Every app of the folder in the order of its file names; a leading ``_`` marks a helper."""
    files = sorted((folder or apps_folder()).glob("[!_]*.py"))
    return [_describe(path) for path in files]


def _describe(path: Path) -> App:
    """Title and question from the first line of the app's docstring, ``Title: question?``."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem
    title, _, question = text.splitlines()[0].partition(":")
    return App(path, title.strip(), question.strip())


def build(apps: Sequence[App]) -> Any:
    """The ASGI application: the front page at ``/`` and every app at ``/its-name/``.

    Raises ``ImportError`` if a dependency of the lab is missing.
    """
    # Read once, when the package is first imported; its own limit is 8 KiB.
    os.environ.setdefault("WEBSOCKETS_MAX_LINE_LENGTH", str(LONGEST + 8192))
    import anywidget  # noqa: F401 - asked for here so that its absence is told before a page opens
    import marimo
    from marimo._config.settings import GLOBAL_SETTINGS
    from starlette.applications import Starlette
    from starlette.responses import HTMLResponse
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

    GLOBAL_SETTINGS.CHECK_STATUS_UPDATE = False
    page = cache(front_page)
    server = marimo.create_asgi_app(quiet=True)
    for app in apps:
        server = server.with_app(path=f"/{app.slug}", root=str(app.path))

    async def index(request: Any) -> HTMLResponse:  # noqa: ARG001 - Starlette passes it
        return HTMLResponse(page(tuple(apps)))

    mounted = server.build()
    pictures = StaticFiles(directory=pictures_folder(), check_dir=False)
    routes = [Route("/", index), Mount("/pictures", pictures), Mount("/", mounted)]
    return _short_addresses(Starlette(routes=routes, lifespan=_closing_sessions(mounted)))


def _closing_sessions(mounted: Any) -> Any:
    """A lifespan that ends every visitor's session: Starlette leaves a mounted app's own unrun."""

    @contextlib.asynccontextmanager
    async def lifespan(application: Any) -> AsyncIterator[None]:  # noqa: ARG001
        yield
        for route in mounted.routes:
            manager = getattr(getattr(route, "app", None), "state", None)
            manager = getattr(manager, "session_manager", None)
            if manager is not None:
                await manager.shutdown()

    return lifespan


def pictures_folder() -> Path:
    """Where the front page's pictures are; it may be missing."""
    return apps_folder() / "pictures"


def front_page(apps: Sequence[App]) -> str:
    """The page at ``/``, with the pictures that there are and the rule files that are loaded."""
    pictures = [path.name for path in pictures_folder().glob("*.png")]
    return home(apps, pictures=pictures, rule_files=rule_files)


def _short_addresses(application: Any) -> Any:
    """The same application, which answers an address beyond :data:`LONGEST` in words.

    A page's scripts open a socket with the page's whole address; too long a one leaves it blank.
    """
    from starlette.responses import HTMLResponse

    async def checked(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and len(scope["query_string"]) > LONGEST:
            answer = HTMLResponse(too_long(len(scope["query_string"])), status_code=414)
            await answer(scope, receive, send)
        else:
            await application(scope, receive, send)

    return checked


def _announce(address: str, apps: Sequence[App]) -> None:
    """Print the address and, if there are apps to show, open the first: a scene, not a list."""
    print(f"The laboratory is open at {address}  (Ctrl-C stops it)", flush=True)
    if apps:
        threading.Timer(0.3, webbrowser.open, [f"{address}{apps[0].slug}/"]).start()


def _serve(application: Any, listener: socket.socket) -> int:
    import torch
    import uvicorn

    # Traces are many small matrices: threads inside one operation only wait for each other.
    torch.set_num_threads(1)
    config = uvicorn.Config(
        application, log_level="error", timeout_graceful_shutdown=1, lifespan="on",
        h11_max_incomplete_event_size=4 * 2**20, http="h11",
    )  # fmt: skip
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])
    print("\nThe laboratory is closed.", flush=True)
    return 0


def _fail(message: str) -> int:
    print(f"vla lab: {message}", file=sys.stderr)
    return 1
