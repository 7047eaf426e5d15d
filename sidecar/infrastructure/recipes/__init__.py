"""Proxy configurations that work with a sidecar's own: one folder of templates for each proxy.

What stands in `deploy/` is what these templates give with the defaults; a test holds the two together.
"""

from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from jinja2 import Environment, StrictUndefined


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a template may say."""

    #: Where the proxy listens, and the application and the sidecar behind it: `host:port`, or `unix:/path`
    #: of the sidecar where the proxy can ask there.
    listen: str = "127.0.0.1:10000"
    app: str = "127.0.0.1:8080"
    sidecar: str = "127.0.0.1:8000"
    #: The client that is pinned in the path; else it is found by host.
    client: str | None = None
    #: Whether requests pass while the sidecar is gone; else they get `unavailable_status`.
    fail_open: bool = True
    unavailable_status: int = 503
    #: How long the proxy waits for an answer: longer than the sidecar for its store.
    timeout_ms: int = 250
    #: The header that has the address alone; without one it is in X-Forwarded-For.
    address_header: str | None = "x-client-ip"
    #: Name and value of the header that tells the sidecar that it is the proxy who asks.
    secret_header: str | None = None
    secret: str | None = None
    #: What the sidecar reads of the client's own headers, lower case.
    passed_headers: tuple[str, ...] = ("x-request-id", "x-session-id", "cookie", "user-agent", "x-api-key")
    #: What it reads too, and what a caller must not be able to write: set by the proxy or removed.
    forgeable_headers: tuple[str, ...] = ("x-user-id", "x-jwt-payload")

    @property
    def pin(self) -> str:
        """What stands before the dialect's path."""
        return f"/clients/{self.client}" if self.client else ""


def proxies() -> list[str]:
    """The names of all proxies that there is a recipe for."""
    return sorted(entry.name for entry in _templates().iterdir() if entry.is_dir())


def render(proxy: str, recipe: Recipe) -> dict[str, str]:
    """File name → text of all files of a proxy's recipe."""
    # What comes out is no HTML.
    environment = Environment(  # noqa: S701
        undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True
    )
    return {
        entry.name: environment.from_string(entry.read_text("utf-8")).render(recipe=recipe)
        for entry in sorted(_templates().joinpath(proxy).iterdir(), key=lambda entry: entry.name)
    }


def _templates() -> Traversable:
    return files(__name__).joinpath("templates")
