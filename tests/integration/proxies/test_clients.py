"""What real HTTP clients do with our refusals, as their users have them, through real proxies.

None is told to wait by the test: a second answer that is a 200 says that the client waited as long as
`Retry-After` says, and one that is a refusal that it did not. Each test prints its row of `docs/proxies.md`.
"""

import asyncio
import threading

import aiohttp
import httpx
import pytest
import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from tests.proxies.checks import counted
from tests.proxies.envoy import ENVOY
from tests.proxies.lab import LIMIT, LIMITED, SHORT, Lab, a_session
from tests.proxies.matrix import Place
from tests.proxies.nginx import PROXIES as NGINX
from tests.proxies.process import PROXY_PORT

PLACES = [Place(proxy, True) for proxy in (ENVOY, NGINX[-1])]
URL = f"http://127.0.0.1:{PROXY_PORT}"
#: Three more times, and at once.
DEAF = Retry(total=3, status_forcelist=[429], respect_retry_after_header=False)

EVERYWHERE = pytest.mark.parametrize("laboratory", PLACES, indirect=True, ids=str)


def row(laboratory: Lab, client: str, did: str) -> None:
    print(f"\n| {laboratory.proxy.name} | {client} | {did} |")


def exhausted(laboratory: Lab, target: str) -> dict[str, str]:
    """A session that has nothing left there: for a second on `SHORT`, for an hour on `LIMITED`."""
    session = a_session()
    with laboratory.connect() as connection:
        number = 1 if target == SHORT else LIMIT
        assert [connection.ask("GET", target, session).status for _ in range(number)] == [200] * number
    return session


@EVERYWHERE
def test_urllib3_waits_of_its_own_accord(laboratory: Lab) -> None:
    """Without a word about retries: as long as it is told, once, on the same connection."""
    with urllib3.HTTPConnectionPool("127.0.0.1", PROXY_PORT) as pool:
        session = exhausted(laboratory, SHORT)
        reply = pool.request("GET", SHORT, headers=session)
    assert reply.retries is not None
    assert (reply.status, [past.status for past in reply.retries.history]) == (200, [429])
    assert (pool.num_requests, pool.num_connections) == (2, 1)
    row(laboratory, "`urllib3`", "waits `Retry-After`, asks again on the same connection: 200")


@EVERYWHERE
def test_urllib3_does_not_repeat_a_post(laboratory: Lab) -> None:
    """Its caller sees the refusal, unless it says `allowed_methods=None`."""
    with urllib3.HTTPConnectionPool("127.0.0.1", PROXY_PORT) as pool:
        session = exhausted(laboratory, SHORT)
        refused = pool.request("POST", SHORT, headers=session, body=b"x")
        retries = Retry(total=1, allowed_methods=None)
        passed = pool.request("POST", SHORT, headers=session, body=b"x", retries=retries)
    assert (refused.status, refused.headers["Retry-After"], passed.status) == (429, "1", 200)
    row(laboratory, "`urllib3`, POST", "429; with `allowed_methods=None` it waits, too: 200")


@EVERYWHERE
def test_urllib3_that_is_told_not_to_listen_gives_up(laboratory: Lab) -> None:
    """All its retries are refused at once: each is a check, and none a charge."""
    session = exhausted(laboratory, LIMITED)
    with (
        urllib3.HTTPConnectionPool("127.0.0.1", PROXY_PORT) as pool,
        counted(laboratory.sidecar) as checks,
        pytest.raises(urllib3.exceptions.MaxRetryError, match="too many 429 error responses"),
    ):
        pool.request("GET", LIMITED, headers=session, retries=DEAF)
    assert checks.number == 4
    row(
        laboratory,
        "`urllib3`, `respect_retry_after_header=False`",
        "asks 4 times at once, then `MaxRetryError`",
    )


@EVERYWHERE
def test_requests_shows_the_refusal(laboratory: Lab) -> None:
    """It asks once; who calls finds the number to wait, and the problem's type."""
    headers = exhausted(laboratory, LIMITED)
    with requests.Session() as session, counted(laboratory.sidecar) as checks:
        reply = session.get(URL + LIMITED, headers=headers)
    assert (reply.status_code, reply.reason, checks.number) == (429, "Too Many Requests", 1)
    assert 3500 < int(reply.headers["Retry-After"]) <= 3600
    assert reply.json()["type"].endswith("#quota-exceeded")
    with pytest.raises(requests.HTTPError, match="429 Client Error"):
        reply.raise_for_status()
    row(laboratory, "`requests`", "429 at once; `raise_for_status` raises `HTTPError`")


@EVERYWHERE
def test_requests_with_an_adapter_waits(laboratory: Lab) -> None:
    """Where the adapter was told nothing but how often."""
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=1))
        reply = session.get(URL + SHORT, headers=exhausted(laboratory, SHORT))
    assert (reply.status_code, [past.status for past in reply.raw.retries.history]) == (200, [429])
    row(laboratory, "`requests`, `HTTPAdapter(max_retries=1)`", "waits `Retry-After`: 200")


@EVERYWHERE
def test_requests_with_an_adapter_that_does_not_listen_gives_up(laboratory: Lab) -> None:
    """With an exception of its own."""
    headers = exhausted(laboratory, LIMITED)
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=DEAF))
        with pytest.raises(requests.exceptions.RetryError, match="too many 429 error responses"):
            session.get(URL + LIMITED, headers=headers)
    row(
        laboratory,
        "`requests`, the same with `respect_retry_after_header=False`",
        "asks 4 times at once, then `RetryError`",
    )


@EVERYWHERE
def test_httpx_leaves_it_to_its_caller(laboratory: Lab) -> None:
    """Its transport's retries are for connections that fail; who waits as it is told passes."""
    with httpx.Client(transport=httpx.HTTPTransport(retries=3)) as client:
        client.headers.update(exhausted(laboratory, SHORT))
        with counted(laboratory.sidecar) as checks:
            refused = client.get(URL + SHORT)
        threading.Event().wait(int(refused.headers["Retry-After"]))
        passed = client.get(URL + SHORT)
    assert (refused.status_code, refused.headers["Retry-After"], checks.number) == (429, "1", 1)
    assert passed.status_code == 200
    with pytest.raises(httpx.HTTPStatusError, match="429 Too Many Requests"):
        refused.raise_for_status()
    row(
        laboratory,
        "`httpx`, `HTTPTransport(retries=3)`",
        "429 at once; whoever sleeps `int(Retry-After)` passes",
    )


@EVERYWHERE
async def test_aiohttp_leaves_it_to_its_caller(laboratory: Lab) -> None:
    """The same, without blocking anybody else."""
    async with aiohttp.ClientSession() as client:
        client.headers.update(exhausted(laboratory, SHORT))
        async with client.get(URL + SHORT) as refused:
            assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
        await asyncio.sleep(int(refused.headers["Retry-After"]))
        async with client.get(URL + SHORT) as passed:
            assert passed.status == 200
    row(laboratory, "`aiohttp`", "429 at once; whoever sleeps `int(Retry-After)` passes")
