"""One form for each path, and the patterns that match it."""

import re
from itertools import product
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.domain import route
from sidecar.domain.route import RouteKind, RoutePattern, canonical_path

tried = settings(deadline=None, max_examples=1000)

CANONICAL = [
    # query and fragment
    ("/a", "/a"),
    ("/a?x=/../y", "/a"),
    ("/a?", "/a"),
    ("/a#frag", "/a"),
    ("/a#b?c", "/a"),
    ("/a?b#c", "/a"),
    ("?x", "/"),
    ("#x", "/"),
    ("", "/"),
    ("/", "/"),
    # percent-encoding of unreserved characters, no other
    ("/A%41", "/AA"),
    ("/%7euser", "/~user"),
    ("/%2D%2e%5f", "/-._"),
    ("/a%2fb", "/a%2Fb"),
    ("/a%5cb", "/a%5Cb"),
    ("/a%252Fb", "/a%252Fb"),
    ("/%252e%252e/a", "/%252e%252e/a"),
    ("/a%00b", "/a%00b"),
    ("/a%3Bb", "/a%3Bb"),
    ("/a%3fb%23c", "/a%3Fb%23c"),
    ("/%C3%a9", "/%C3%A9"),
    ("/é", "/%C3%A9"),
    ("/\udce9", "/%E9"),
    ("/a b", "/a%20b"),
    ("/a%20b", "/a%20b"),
    ("/{id}", "/%7Bid%7D"),
    # a stray "%" is itself, and does not decode at the second look
    ("/100%", "/100%25"),
    ("/%zz", "/%25zz"),
    ("/%%41", "/%25A"),
    ("/%2%65%2%65/a", "/%252e%252e/a"),
    # ";" and what follows it, in each segment
    ("/a;x=1/b", "/a/b"),
    ("/a;x;y/b;z", "/a/b"),
    ("/;x/a", "/a"),
    ("/a/..;x/b", "/b"),
    ("/a/.;/b", "/a/b"),
    # slashes
    ("//a///b", "/a/b"),
    ("/x/", "/x"),
    ("//", "/"),
    ("//evil.example/x", "/evil.example/x"),
    # dot segments
    ("/a/../b", "/b"),
    ("/a/./b/.", "/a/b"),
    ("/a/b/..", "/a"),
    ("/../../a", "/a"),
    ("/%2e%2e/x", "/x"),
    ("/a/%2E./b", "/b"),
    ("/a//../b", "/b"),
    ("/...", "/..."),
    ("/.a/..b", "/.a/..b"),
    # what stays
    ("/A/a", "/A/a"),
    ("/a\\b", "/a\\b"),
    ("/*", "/*"),
    ("/a/!$&'()*+,=:@", "/a/!$&'()*+,=:@"),
]


@pytest.mark.parametrize(("target", "path"), CANONICAL)
def test_a_target_has_one_canonical_form(target: str, path: str) -> None:
    """Whatever its spelling; what an application may tell apart stays apart."""
    assert canonical_path(target) == path


@pytest.mark.parametrize("target", ["*", "a", "host:443", "http://abs.example/p", "/\ud800", "/a\udfff"])
def test_what_is_not_a_path_has_none(target: str) -> None:
    """`OPTIONS *`, CONNECT, and text that stands for no bytes."""
    assert canonical_path(target) is None


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/a%2Fb", "/a/b"),
        ("/a%5cb", "/a/b"),
        ("/a\\b", "/a/b"),
        ("/a%2f..%2fb", "/b"),
        ("/a/%2e%2e%2Fb", "/b"),
        ("/a%252Fb", "/a%252Fb"),
    ],
)
def test_slashes_are_decoded_where_that_is_asked_for(target: str, path: str) -> None:
    """`paths.decode_slashes` is for applications that read them as slashes; once, as they do."""
    assert canonical_path(target, decode_slashes=True) == path


targets = st.text(
    st.sampled_from("/.%;?#\\aAzZ0257eEfFcC~-*:@{} é\x00\udcff") | st.characters(), max_size=30
).map("/{}".format)
PARTS = re.findall(r"\S+", "/ // . .. ... ; %2e %2E %2f %5C %25 % a %61 A; .; ..; ? # \\ *")
spellings = st.lists(st.sampled_from(PARTS), max_size=12)


@given(targets | spellings.map("".join).map("/{}".format), st.booleans())
@tried
def test_a_canonical_path_is_its_own_canonical_form(target: str, decode_slashes: bool) -> None:
    """It has no empty and no dot segments, and bringing it to its form again changes nothing."""
    path = canonical_path(target, decode_slashes=decode_slashes)
    if path is not None:
        assert canonical_path(path, decode_slashes=decode_slashes) == path
        assert path.isascii()
        assert path == "/" or not {"", ".", ".."} & set(path[1:].split("/"))


@given(spellings.map("".join).map("/{}".format) | st.text("/.a-~*", max_size=12).map("/{}".format))
@tried
def test_the_fast_path_says_what_the_slow_one_does(target: str) -> None:
    """Plain targets skip the work, not the result."""
    with mock.patch.object(route, "_PLAIN", re.compile("(?!)")):
        slow = canonical_path(target)
    assert canonical_path(target) == slow


@pytest.mark.parametrize(
    "part", ["/a", "%2e/", "%2e%2e/", ";", "//", "%", "../", "/..", "a", "/.", "\\", "é"]
)
def test_a_target_of_60_kilobytes_is_brought_to_its_form(part: str) -> None:
    """Linear, whatever it is made of: a quadratic step would keep this test for minutes."""
    target = "/" + part * (60_000 // len(part))
    path = canonical_path(target)
    assert path is not None
    assert canonical_path(path) == path


PATTERNS = [
    # route, what it matches, what it does not
    ("/api/videos", ["/api/videos"], ["/api", "/api/videos/1", "/api/Videos"]),
    ("/api/videos/", ["/api/videos"], ["/api"]),
    ("/", ["/"], ["/a"]),
    ("/%41/../b", ["/b"], ["/A/../b"]),
    ("/users/{id}/posts", ["/users/7/posts"], ["/users/7", "/users/posts", "/users/7/posts/1"]),
    ("/{a}/{b}", ["/x/y"], ["/x", "/x/y/z", "/"]),
    ("/é/{x}", ["/%C3%A9/1"], ["/e/1"]),
    ("/api/*", ["/api", "/api/x", "/api/x/y"], ["/apix", "/ap", "/"]),
    ("/a*", ["/a", "/ab", "/ab/c", "/a/c"], ["/b", "/b/a", "/"]),
    ("/a/v*", ["/a/v", "/a/v1", "/a/v1/x"], ["/a", "/a/1", "/b/v1"]),
    ("/.*", ["/.git", "/.env/x", "/..."], ["/a", "/"]),
    ("/*", ["/", "/a", "/a/b"], []),
    ("*", ["/", "/a"], []),
]


@pytest.mark.parametrize(("text", "matched", "others"), PATTERNS)
def test_a_route_matches_its_paths_and_no_others(text: str, matched: list[str], others: list[str]) -> None:
    """Exact, with segments, or a prefix."""
    pattern = RoutePattern.parse(text)
    assert [path for path in [*matched, *others] if pattern.matches(path)] == matched


@pytest.mark.parametrize("text", ["/*", "*"])
def test_only_the_catch_all_matches_what_is_not_a_path(text: str) -> None:
    """It is there for everything; the broadest of the others is not."""
    assert RoutePattern.parse(text).matches(None)
    assert RoutePattern.parse(text).catches_all
    assert not any(RoutePattern.parse(other).matches(None) for other in ("/", "/{x}", "/a*", "/a/*"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "starts with '/'"),
        ("api", "starts with '/'"),
        ("/a?b", "'?' never occurs"),
        ("/a#b", "'#' never occurs"),
        ("/a;b/*", "';' never occurs"),
        ("/a/*/b", "'*' is allowed at the end only"),
        ("/a**", "'*' is allowed at the end only"),
        ("/{id}/*", "not both"),
        ("/{id}/{id}", "{id} stands twice"),
        ("/a{id}", "a whole segment"),
        ("/{}", "a whole segment"),
        ("/{1a}", "a whole segment"),
        ("/{a", "a whole segment"),
        ("/../{id}", "dot segments"),
        ("/%2e/{id}", "dot segments"),
        ("/a b/*", "such as /a%20b/*"),
        ("/a//*", "such as /a/*"),
        ("//*", "such as /*"),
        ("/%41*", "such as /A*"),
        ("/a%2*", "such as /a%252*"),
        ("/a/../b*", "such as /b*"),
    ],
)
def test_a_route_that_could_never_match_is_refused(text: str, complaint: str) -> None:
    """The message says what is wrong, or how it is written."""
    with pytest.raises(ValueError, match=re.escape(complaint)):
        RoutePattern.parse(text)


def test_exact_is_more_specific_than_segments_than_the_longer_prefix() -> None:
    """The order in which the contract names them."""
    routes = ["/*", "/a*", "/a/*", "/a/b*", "/{x}/{y}", "/a"]
    mixed = sorted(routes, reverse=True)
    assert sorted(mixed, key=lambda text: RoutePattern.parse(text).specificity) == routes


SEGMENTS = ["a", "ab", "b"]
ROUTES = [
    "/",
    "/*",
    *(f"/{a}{end}" for a in SEGMENTS for end in ("", "*", "/*")),
    *(f"/{a}/{b}{end}" for a, b in product(SEGMENTS, repeat=2) for end in ("", "*", "/*")),
    "/{x}",
    "/{x}/{y}",
    *(f"/{{x}}/{a}" for a in SEGMENTS),
    *(f"/{a}/{{y}}" for a in SEGMENTS),
]
PATHS = [
    "/" + "/".join(segments)
    for depth in range(4)
    for segments in product(["a", "ab", "abz", "az", "b", "bz", "z"], repeat=depth)
]


def as_regex(text: str) -> re.Pattern[str]:
    """A route's meaning written down a second time."""
    if text == "/*":
        return re.compile(".*")
    if text.endswith("/*"):
        return re.compile(re.escape(text[:-2]) + "(/.*)?")
    if text.endswith("*"):
        return re.compile(re.escape(text[:-1]) + ".*")
    return re.compile(re.sub(r"\\\{.\\\}", "[^/]+", re.escape(text)))


MATCHED = {text: {path for path in PATHS if as_regex(text).fullmatch(path)} for text in ROUTES}


@pytest.mark.parametrize("text", ROUTES)
def test_matching_agrees_with_a_regular_expression(text: str) -> None:
    """For every small route, over every small path."""
    pattern = RoutePattern.parse(text)
    assert {path for path in PATHS if pattern.matches(path)} == MATCHED[text]


@pytest.mark.parametrize("text", ROUTES)
def test_a_route_covers_those_whose_paths_it_all_matches(text: str) -> None:
    """For every pair of small routes; an exact route never covers a prefix, which goes on without end."""
    pattern = RoutePattern.parse(text)
    covered = {other for other in ROUTES if pattern.covers(RoutePattern.parse(other))}
    expected = {other for other in ROUTES if MATCHED[text] >= MATCHED[other]}
    assert covered == expected


def test_parameters_name_the_index_of_their_segment() -> None:
    """So that `path:NAME` can find it."""
    pattern = RoutePattern.parse("/users/{id}/posts/{post_2}")
    assert pattern.kind is RouteKind.SEGMENTS
    assert dict(pattern.parameters) == {"id": 1, "post_2": 3}
