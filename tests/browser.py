"""A real Chromium without a window, driven through its DevTools protocol."""

import asyncio
import json
import subprocess
import tempfile
from base64 import b64decode
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import ClientSession, ClientWebSocketResponse

from tests.parts import until

_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-extensions",
    "--disable-sync",
    "--disable-component-update",
    "--disable-background-networking",
    "--no-first-run",
    "--no-default-browser-check",
    "--window-size=1280,1600",
    # Whatever the page asks for, it gets from this machine or not at all.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
)


class Browser:
    """One page. `requests` are the addresses that it asked for, `complaints` what its console had to say.

    An asynchronous context manager.
    """

    def __init__(self, binary: Path) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._binary = binary
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._session = ClientSession()

    async def __aenter__(self) -> Self:
        # Not pytest's tmp_path: the browser may still write to it while it ends.
        self._profile = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
        command = [str(self._binary), *_OPTIONS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = _started(command)
        self._page = await self._session.ws_connect(await self._address(), max_msg_size=0)
        self._reading = asyncio.create_task(self._read(self._page))
        for domain in ("Page", "Network", "Runtime", "Log"):
            await self.send(f"{domain}.enable")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Asked to, it waits for its own children, which write to the profile as long as they live.
        await self.send("Browser.close")
        await asyncio.to_thread(self._process.wait, 30)
        self._reading.cancel()
        await self._page.close()
        await self._session.close()
        self._profile.cleanup()

    async def send(self, method: str, **parameters: Any) -> Any:
        number = len(self._answers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._page.send_json({"id": number, "method": method, "params": parameters})
        return await asyncio.wait_for(self._answers[number], 30)

    async def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = await self.send("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def screenshot(self, file: Path) -> None:
        file.write_bytes(b64decode((await self.send("Page.captureScreenshot"))["data"]))

    async def _address(self) -> str:
        """Of the page's own socket."""
        port = Path(self._profile.name, "DevToolsActivePort")
        await until(lambda: port.exists() and port.read_text().count("\n") > 0, "a browser", seconds=30)
        async with self._session.get(f"http://127.0.0.1:{port.read_text().split()[0]}/json/list") as answer:
            pages = [one for one in await answer.json() if one["type"] == "page"]
        address: str = pages[0]["webSocketDebuggerUrl"]
        return address

    async def _read(self, page: ClientWebSocketResponse) -> None:
        async for message in page:
            read = json.loads(message.data)
            if "id" in read:
                self._answers[read["id"]].set_result(read.get("result"))
                continue
            match read["method"]:
                case "Network.requestWillBeSent":
                    self.requests.append(read["params"]["request"]["url"])
                case "Log.entryAdded" if read["params"]["entry"]["level"] in ("warning", "error"):
                    self.complaints.append(read["params"]["entry"]["text"])
                case "Runtime.exceptionThrown":
                    self.complaints.append(str(read["params"]["exceptionDetails"]))


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
