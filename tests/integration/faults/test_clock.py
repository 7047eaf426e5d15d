"""A replica whose clock is an hour ahead decides as the others do: the store's clock counts."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sidecar.domain.algorithms import Algorithm
from tests.faults.scene import an_hour_ahead
from tests.parts import StoreServer, require
from tests.sidecar_process import SidecarProcess

LIMIT, HOUR = 9, 3600
RULES = [
    {"id": name.value, "route": f"/{name}", "identifier_type": "none", "algorithm": name.value}
    | {"limit": LIMIT, "window_seconds": HOUR}
    for name in Algorithm
]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SidecarProcess]]:
    """One with the right time, and one with another."""
    with ExitStack() as stack:
        store = stack.enter_context(StoreServer(require("valkey")))
        config: dict[str, Any] = {
            "store": {"url": store.url},
            "default_client": "c",
            "clients": [{"id": "c", "rules": RULES}],
        }
        right, wrong = (tmp_path_factory.mktemp(name) for name in ("right", "wrong"))
        variables: list[tuple[Path, dict[str, str]]] = [(right, {}), (wrong, an_hour_ahead(wrong))]
        yield [
            stack.enter_context(SidecarProcess(directory, config, variables=more))
            for directory, more in variables
        ]


def test_its_log_shows_that_its_clock_is_wrong(pair: list[SidecarProcess]) -> None:
    """Else nothing here would be tested."""
    right, wrong = (sidecar.logged("serving")[0]["time"] for sidecar in pair)
    assert right[:13] != wrong[:13]


@pytest.mark.parametrize("algorithm", Algorithm)
def test_both_count_in_the_same_window(pair: list[SidecarProcess], algorithm: Algorithm) -> None:
    """Asked in turn, they give out the limit once, and agree on how long to wait."""
    replies = [pair[number % 2].ask("GET", f"/authz/{algorithm}") for number in range(LIMIT + 4)]
    assert [reply.status for reply in replies] == [200] * LIMIT + [429] * 4
    waits = [int(reply.headers["retry-after"]) for reply in replies[LIMIT:]]
    assert max(waits) - min(waits) <= 60
