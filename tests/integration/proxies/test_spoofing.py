"""Nobody can lie about who they are: through each real proxy, with each lie, the limit holds."""

import uuid
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.proxies.all import PROXIES
from tests.proxies.envoy import ENVOY
from tests.proxies.lab import Backgrounds, Lab, lab
from tests.proxies.spoofing import CONFIG, LIES, LIMIT, ROUTES, hostile, status, tell

#: What a proxy does not let through at all: it answers 400, and asks nobody.
ILL_FORMED = {"envoy-1.40": {"hop_by_hop_address", "other_spellings"}}
#: HAProxy removes these headers and does not mind what was in them.
TAKES_CONTROL_CHARACTERS = {"haproxy"}
#: Identifiers that a caller may choose, but chooses one of.
OWN_SESSIONS = {
    "no UTF-8": "\xff\xfe",
    "UTF-8": "\xc3\xa9",
    "8 kB": "x" * 8000,
    "separators": ':|;="{} %00',
}


@pytest.fixture(scope="module", params=PROXIES, ids=lambda proxy: str(proxy.name))
def laboratory(
    request: pytest.FixtureRequest, backgrounds: Backgrounds, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lab]:
    with lab(request.param, tmp_path_factory.mktemp("lab"), config=CONFIG, shared=backgrounds) as running:
        yield running


def test_a_thousand_lies_are_one_address(laboratory: Lab) -> None:
    """Exactly the limit is admitted on each route; nor is there any left for who tells no lie."""
    ill = ILL_FORMED.get(laboratory.proxy.name, set())
    told = tell(laboratory, 1000)
    print(f"\n{laboratory.proxy.name}: {Counter(each.status for each in told)}")
    assert {each.lie for each in told} == {lie.__name__ for lie in LIES}
    assert {each.status for each in told if each.lie in ill} <= {400}
    well_formed = [each for each in told if each.lie not in ill]
    assert {each.status for each in well_formed} == {200, 429}
    assert Counter(each.route for each in well_formed if each.status == 200) == dict.fromkeys(ROUTES, LIMIT)
    assert sum(target.startswith(b"/by-") for target in laboratory.asked) == LIMIT * len(ROUTES)
    assert [status(laboratory, route, []) for route in ROUTES] == [429] * len(ROUTES)


def test_what_is_hard_to_read_is_no_new_caller(laboratory: Lab) -> None:
    """Nor an error: bytes that are no UTF-8, nothing, 8 kB, a hundred lines."""
    for route in ROUTES:
        use_up(laboratory, route)
    for name in hostile(0):
        answers = [status(laboratory, route, hostile(n)[name]) for n in range(3) for route in ROUTES]
        refused = name == "control characters" and laboratory.proxy.name not in TAKES_CONTROL_CHARACTERS
        assert (name, set(answers)) == (name, {400 if refused else 429})


@pytest.mark.parametrize("name", OWN_SESSIONS)
def test_a_session_of_any_bytes_is_one_session(laboratory: Lab, name: str) -> None:
    """It is counted like any other, and is not another one the next time."""
    session = [("X-Session-Id", uuid.uuid4().hex + OWN_SESSIONS[name])]
    answers = [status(laboratory, "/by-session", session) for _ in range(LIMIT + 2)]
    assert answers == [200] * LIMIT + [429] * 2


def test_sessions_that_differ_in_their_last_byte_are_two(laboratory: Lab) -> None:
    """However long they are; but Envoy writes the same for all bytes that are no UTF-8."""
    for common, endings in (("x" * 8000, "ab"), ("", "\xfe\xff")):
        first = uuid.uuid4().hex + common
        one, other = ([("X-Session-Id", first + end)] for end in endings)
        use_up(laboratory, "/by-session", one)
        together = laboratory.proxy is ENVOY and not common
        assert status(laboratory, "/by-session", other) == (429 if together else 200)


def test_a_session_with_a_control_character_is_none(laboratory: Lab) -> None:
    """The request is ill-formed, and not passed on."""
    before = len(laboratory.asked)
    assert status(laboratory, "/by-session", [("X-Session-Id", f"{uuid.uuid4().hex}\x01")]) == 400
    assert len(laboratory.asked) == before


def use_up(laboratory: Lab, route: str, fields: list[tuple[str, str]] | None = None) -> None:
    """Whatever was left."""
    answers = [status(laboratory, route, fields or []) for _ in range(LIMIT + 1)]
    assert answers[-1] == 429
