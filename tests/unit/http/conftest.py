"""A front that is being served, for each test its own."""

from collections.abc import AsyncIterator

import pytest
from aiohttp.web import TCPSite

from tests.served_front import Served


@pytest.fixture
async def front() -> AsyncIterator[Served]:
    served = Served()
    await served.runner.setup()
    await TCPSite(served.runner, "127.0.0.1", 0).start()
    served.port = served.runner.addresses[0][1]
    yield served
    await served.runner.cleanup()
