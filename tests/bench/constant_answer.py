"""What the framework alone costs: aiohttp's `web.Application` on uvloop, one answer, headers like ours.

python -m tests.bench.constant_answer PORT
"""

import sys

import uvloop
from aiohttp import web

HEADERS = {
    "X-Request-ID": "5e1f7a0c-6d2b-4b7e-9a51-0123456789ab",
    "Server": "sidecar",
    "X-RateLimit-Limit": "100",
    "X-RateLimit-Remaining": "57",
    "X-RateLimit-Reset": "23",
}


async def answer(_: web.Request) -> web.Response:
    return web.Response(headers=HEADERS)


def main(port: int) -> None:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    uvloop.install()
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None)


if __name__ == "__main__":
    main(int(sys.argv[1]))
