"""Recipes of Traefik and Caddy with other values than those of `deploy/`."""

from pathlib import Path
from typing import Any

from tests.proxies import caddy, traefik
from tests.proxies.forward_auth import FORGED, fields, write
from tests.proxies.process import Proxy
from tests.proxies.scripted import front

PINNED = {"client": "c", "secret_header": "x-sidecar-secret", "secret": "0123456789abc+/="}


def rendered_caddy(**values: Any) -> Proxy:
    def command(program: Path, directory: Path, fail_open: bool) -> list[str]:
        write("caddy", directory, fail_open, values)
        return caddy.started(program, directory, directory / "Caddyfile")

    return Proxy(name="caddy-rendered", program="caddy", command=command)


def rendered_traefik(**values: Any) -> Proxy:
    def command(program: Path, directory: Path, fail_open: bool) -> list[str]:
        write("traefik", directory, fail_open, values)
        return traefik.started(program)

    return Proxy(name="traefik-rendered", program="traefik", command=command, ready=traefik.ready)


def test_caddy_does_as_its_recipe_was_told(tmp_path: Path) -> None:
    """Status without the sidecar, secret, client, where the address is, the IETF's headers."""
    values = {"unavailable_status": 599, "address_header": None, "ietf_headers": True}
    with front(rendered_caddy(**values, **PINNED), tmp_path, fail_open=False) as proxy:
        proxy.sidecar.answers(200, {"RateLimit": '"r";r=0;t=7'})
        assert proxy.ask("GET", "/x", FORGED).headers["ratelimit"] == '"r";r=0;t=7'
        proxy.sidecar.answering.clear()
        assert proxy.ask("GET", "/x").status == 599
        head = proxy.sidecar.heads[0]
    said = fields(head)
    assert head.startswith(b"GET /clients/c/forward-auth HTTP/1.1\r\n")
    assert (said["x-sidecar-secret"], said["x-forwarded-for"]) == (PINNED["secret"], "127.0.0.1")
    assert "x-client-ip" not in said


def test_caddys_application_that_is_gone_is_no_sidecar_that_is(tmp_path: Path) -> None:
    """A request that was asked about gets Caddy's own 502, and is asked about once."""
    with front(rendered_caddy(app="127.0.0.1:1"), tmp_path) as proxy:
        assert (proxy.ask().status, len(proxy.sidecar.heads)) == (502, 1)


def test_traefik_does_as_its_recipe_was_told(tmp_path: Path) -> None:
    """A sidecar that hangs is a 503; the secret is for the sidecar alone."""
    with front(rendered_traefik(**PINNED), tmp_path, fail_open=False) as proxy:
        proxy.sidecar.heads.clear()
        reply = proxy.ask("GET", "/x")
        proxy.sidecar.answering.clear()
        assert proxy.ask("GET", "/x").status == 503
        head = proxy.sidecar.heads[0]
    assert head.startswith(b"GET /clients/c/forward-auth HTTP/1.1\r\n")
    assert fields(head)["x-sidecar-secret"] == PINNED["secret"]
    assert "x-sidecar-secret" not in fields(reply.body)


def test_traefiks_application_that_is_gone_is_no_sidecar_that_is(tmp_path: Path) -> None:
    """A request that was asked about gets Traefik's own 502, and is asked about once."""
    with front(rendered_traefik(app="127.0.0.1:1"), tmp_path) as proxy:
        proxy.sidecar.heads.clear()
        assert (proxy.ask().status, len(proxy.sidecar.heads)) == (502, 1)
