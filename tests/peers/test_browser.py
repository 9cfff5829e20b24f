"""A page in Chromium, with rsocket-js: the page of docs/how-to/browser.md as it is, and what such a page can do."""

from __future__ import annotations

import asyncio
import http.server
import json
import re
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peers.node import installed

import afflux
from tests.transports.certificates import Certificates

HOME = Path(__file__).resolve().parent / "browser"
DOCS = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "browser.md"
TEXT = DOCS.read_text(encoding="utf-8")
FILES = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```$', TEXT, re.MULTILINE | re.DOTALL))
BUNDLE = re.search(r"^npx esbuild (.*)$", TEXT, re.MULTILINE)

PROGRAM = """
(async () => {
  const {Buffer, RSocketConnector, WebsocketClientTransport, WellKnownMimeType, encodeBearerAuthMetadata,
    encodeCompositeMetadata} = await import("./rsocket.js");
  const wsCreator = (url) => new WebSocket(url, "rsocket");
  const transport = new WebsocketClientTransport({url: %s, wsCreator});
  let opened;
  try {
    opened = await (async () => { %s; return socket; })();
  } catch (error) {
    return "not connected";
  }
  const socket = opened;
  const data = (text) => ({data: Buffer.from(text)});
  const texts = [];
  return await new Promise((done) => {
    const rest = {onError: (error) => done(error.message), onExtension() {}, onComplete: () => done(texts)};
    const onNext = ({data}, last) => { texts.push(String(data)); if (last) done(texts); };
    %s
  });
})()
"""
PLAIN = "const socket = await new RSocketConnector({ transport }).connect()"
WITH_TOKEN = "".join(re.findall(r"^```js\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
REQUEST = 'socket.requestResponse(data("you"), {onNext, ...rest});'
CHANNEL = """
    let sent = 1;
    const channel = socket.requestChannel(data("a"), 100, false, {onNext, ...rest, cancel() {}, request(n) {
      for (; n > 0 && sent < 3; n--, sent++) channel.onNext(data("abc"[sent]), sent === 2);
    }});
"""


class Chromium:
    """A browser with one page, driven through its standard input."""

    def __init__(self, binary: str) -> None:
        command = ("node", str(HOME / "drive.js"), binary)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, name: str, argument: str) -> Any:
        """Open a URL, run an expression, or wait until one is true."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([name, argument]) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer.get("ok")

    def close(self) -> None:
        """Close the browser."""
        self.process.communicate()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page, bundled with its command."""
    if reason := installed(HOME):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("page")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "node_modules").symlink_to(HOME / "node_modules")
    assert BUNDLE is not None
    command = (HOME / "node_modules" / ".bin" / "esbuild", *BUNDLE[1].split())
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def browser(folder: Path) -> Iterator[Chromium]:
    """Chromium; skipped where it is missing."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if binary is None:
        pytest.skip("chromium not found (Debian: apt-get install chromium)")
    browser = Chromium(binary)
    yield browser
    browser.close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def pages(folder: Path) -> Iterator[int]:
    """The port that serves the folder."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def ticks() -> Any:
    """The handler of the page."""
    names: dict[str, Any] = {}
    exec(FILES["ticks.py"], names)
    return names["Ticks"]()


async def run(
    browser: Chromium, pages: int, uri: str, code: str, *, connect: str = PLAIN, host: str = "127.0.0.1"
) -> Any:
    """Open an empty page of a host and run code in it with a connection."""
    await asyncio.to_thread(browser, "open", f"http://{host}:{pages}/rsocket.js")
    return await asyncio.to_thread(browser, "run", PROGRAM % (json.dumps(uri), connect, code))


async def test_a_request_and_a_channel(browser: Chromium, pages: int) -> None:
    async with afflux.serve("ws://127.0.0.1:0", ticks()) as server:
        assert await run(browser, pages, server.uri, REQUEST) == ["hello, you"]
        assert await run(browser, pages, server.uri, CHANNEL) == ["A", "B", "C"]


async def test_a_stream_waits_for_credit(browser: Chromium, pages: int) -> None:
    made: list[int] = []
    stopped = asyncio.Event()

    class Endless:
        async def stream(self, payload: afflux.Payload) -> AsyncIterator[bytes]:
            try:
                for number in range(1000):
                    made.append(number)
                    yield b"%d" % number
            finally:
                stopped.set()

    credit = 'const s = socket.requestStream(data(""), 3, {...rest, onNext({data}) { texts.push(String(data)); '
    code = credit + "if (texts.length === 3) s.request(2); if (texts.length === 5) { s.cancel(); done(texts); }}});"
    async with afflux.serve("ws://127.0.0.1:0", Endless()) as server:
        assert await run(browser, pages, server.uri, code) == list("01234")
        await stopped.wait()
    assert len(made) <= 6  # one beyond the credit


async def test_wss_with_a_token(browser: Chromium, pages: int, tmp_path: Path) -> None:
    check = afflux.auth.at_setup(afflux.auth.verify_token("secret"))
    tls = Certificates(tmp_path).to_serve
    async with afflux.serve("wss://127.0.0.1:0", ticks(), on_setup=check, tls=tls) as server:
        assert await run(browser, pages, server.uri, REQUEST, connect=WITH_TOKEN) == ["hello, you"]
        wrong = await run(browser, pages, server.uri, REQUEST, connect=WITH_TOKEN.replace("secret", "wrong"))
        assert afflux.auth.REFUSED in wrong


async def test_a_page_of_another_host(browser: Chromium, pages: int) -> None:
    for origins, answer in (
        (None, "not connected"),
        ([f"http://localhost:{pages}"], ["hello, you"]),
        (["*"], ["hello, you"]),
        (["https://app.example"], "not connected"),
    ):
        async with afflux.serve("ws://127.0.0.1:0", ticks(), origins=origins) as server:
            assert await run(browser, pages, server.uri, REQUEST, host="localhost") == answer
            assert server.refused == ({"origin": 1} if answer == "not connected" else {})


async def test_the_page_streams_and_connects_again(browser: Chromium, pages: int, folder: Path) -> None:
    count = 'document.querySelectorAll("#ticks li").length'
    async with afflux.serve("ws://127.0.0.1:0", ticks()) as server:
        page = FILES["index.html"].replace("ws://127.0.0.1:7000/", f"{server.uri}/")
        (folder / "index.html").write_text(page, encoding="utf-8")
        await asyncio.to_thread(browser, "open", f"http://127.0.0.1:{pages}/")
        await asyncio.to_thread(browser, "until", f"{count} === 20")
        assert (
            await asyncio.to_thread(browser, "run", 'document.querySelector("li:last-child").textContent') == "tick 19"
        )
        await asyncio.to_thread(browser, "until", 'document.querySelector("#state").textContent === "complete"')
        uri = server.uri
    await asyncio.to_thread(browser, "until", 'document.querySelector("#state").textContent === "lost"')
    async with afflux.serve(uri, ticks()):
        await asyncio.to_thread(browser, "until", f"{count} === 40")


def test_the_versions_of_the_page_are_those_of_the_tests() -> None:
    wanted = json.loads((HOME / "package.json").read_text())["dependencies"]
    wanted.pop("puppeteer-core")
    assert dict(re.findall(r"([a-z-]+)@(\d\S+)", TEXT)) == wanted
