"""Writes what the templates of the recipes give with the defaults: the files of `deploy/`, and `envoy.yaml`.

    python -m tests.proxies.write_recipes

Fail-closed ones stand in a folder beside them, where they differ from the others or are needed next to one
that does.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sidecar.infrastructure.recipes import Recipe, proxies, render

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CLOSED = "fail-closed"
#: `make run` and docker-compose.yml use it unchanged, where callers come from outside.
ENVOY = Recipe(listen="0.0.0.0:10000")
#: Recipes whose files are used from one folder, also those that are the same.
_WHOLE = ("nginx", "ingress-nginx", "haproxy", "traefik")


def files_of(proxy: str) -> dict[Path, str]:
    """Every file of a proxy's recipe → what is to stand in it."""
    return {_folder(proxy) / name: text for name, text in _open(proxy).items()} | dict(_closed(proxy))


def main() -> None:
    for proxy in proxies():
        for path, text in files_of(proxy).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))


def _folder(proxy: str) -> Path:
    return ROOT if proxy == "envoy" else DEPLOY / proxy


def _recipe(proxy: str) -> Recipe:
    return ENVOY if proxy == "envoy" else Recipe()


def _open(proxy: str) -> dict[str, str]:
    return render(proxy, _recipe(proxy))


def _closed(proxy: str) -> Iterator[tuple[Path, str]]:
    opened = _open(proxy)
    for name, text in render(proxy, replace(_recipe(proxy), fail_open=False)).items():
        if proxy in _WHOLE or text != opened[name]:
            yield DEPLOY / proxy / CLOSED / name, text


if __name__ == "__main__":
    main()
