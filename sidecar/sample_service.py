"""A small service to protect, in the demo and in docker-compose.yml: it answers what it was asked."""

from aiohttp import web

#: Where envoy.yaml looks for the application.
HOST, PORT = "127.0.0.1", 8080


def application() -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _answer)
    return app


async def _answer(request: web.Request) -> web.Response:
    return web.json_response({"service": "sample", "method": request.method, "path": request.raw_path})


if __name__ == "__main__":
    web.run_app(application(), host=HOST, port=PORT)
