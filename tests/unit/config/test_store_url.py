"""Which `store.url` is taken; a wrong one is an error when loading, and nothing of it is repeated."""

from pathlib import Path
from urllib.parse import quote

import pytest
from redis.asyncio.connection import parse_url

from sidecar.infrastructure.config import ConfigurationError, load
from sidecar.infrastructure.config.store_url import STORES
from sidecar.infrastructure.redis.connection import connect
from sidecar.infrastructure.store_nodes import parse

HOST = "expected a host; characters such as / ? [ ] in a password are percent-encoded"
PORT = "expected a port from 1 to 65535, or none; characters such as / ? : in a password are percent-encoded"
BRACKETS = "expected [ and ] around an IPv6 address and nowhere else"
DATABASE = "expected the number of a database after the host, or nothing"
SOCKET = "expected the absolute path of a socket: unix:///path"
OPTIONS = (
    "expected no other options than db and, for rediss://, ssl_ca_certs, ssl_certfile, ssl_keyfile, "
    "ssl_cert_reqs, ssl_check_hostname"
)
TLS_OF_CLUSTER = (
    "expected no other options than for rediss+cluster://, ssl_ca_certs, ssl_certfile, ssl_keyfile, "
    "ssl_cert_reqs, ssl_check_hostname"
)


def loaded(folder: Path, url: str, **environ: str) -> str:
    path = folder / "sidecar.yaml"
    path.write_text(f"store:\n  url: '{url}'\n", encoding="utf-8")
    return load(path, environ).settings.store.url


def refused(folder: Path, url: str, **environ: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        loaded(folder, url, **environ)
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "redis://h/",
        "redis://h/0",
        "redis://h:6379/15",
        "redis://my_redis.internal:1?db=3",
        "redis://:p%40ss:w%2Frd@10.0.0.1:6379/1",
        "redis://user:p@ss@h",
        "redis://[::1]:6379",
        "redis://[2001:db8::1]",
        "rediss://h?ssl_cert_reqs=none&ssl_check_hostname=false",
        "unix:///run/redis.sock",
        "unix:///run/redis.sock?db=1",
        "unix://user:pass@/run/redis.sock",
    ],
)
def test_a_right_url_is_taken_as_it_is(tmp_path: Path, url: str) -> None:
    """And the Redis library takes it too."""
    assert loaded(tmp_path, url) == url
    assert parse_url(url)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://h:abc", PORT),
        ("redis://h:99999", PORT),
        ("redis://h:0", PORT),
        ("redis://h:", PORT),
        ("redis://a:1,b:2", PORT),
        ("redis://user:s3cret/x@h", PORT),
        ("redis://", HOST),
        ("redis:///0", HOST),
        ("redis://:s3cret/x@h", HOST),
        ("redis://a,b", HOST),
        ("redis://h%00", HOST),
        ("redis://[::1", BRACKETS),
        ("redis://h/xyz", DATABASE),
        ("redis://h/1/2", DATABASE),
        ("redis://h/-1", DATABASE),
        ("redis://h?db=x", "expected the number of a database as the option db"),
        ("redis://h?db=", "expected the number of a database as the option db"),
        ("redis://h/1?db=1", "expected the database either after the host or as the option db"),
        ("redis://h?db=1&db=2", "the option db stands twice"),
        ("redis://:s3#cret@h", "expected no '#'; in a password it is written %23"),
        ("redis://h /0", "expected no spaces and no control characters; percent-encode those of a password"),
        ("unix://", SOCKET),
        ("unix:///", SOCKET),
        ("unix://run/redis.sock", SOCKET),
        ("unix://run", SOCKET),
        ("unix:///run/%00", SOCKET),
        ("redis://h?max_connections=7", "the option max_connections cannot be set here"),
        ("redis://h?decode_responses=s3cret", "the option decode_responses cannot be set here"),
        ("unix:///s?socket_timeout=7", "the option socket_timeout cannot be set here"),
        ("rediss://h?protocol=3", "the option protocol cannot be set here"),
        ("redis://user:12?s3cret@h", OPTIONS),
        ("rediss://h?ssl_ca_cert=s3cret", f"{OPTIONS}; did you mean ssl_ca_certs?"),
        ("redis://h?ssl_cert_reqs=none", "the option ssl_cert_reqs belongs to rediss://"),
        (
            "rediss://h?ssl_cert_reqs=s3cret",
            "expected the option ssl_cert_reqs to be required or optional or none",
        ),
        (
            "rediss://h?ssl_check_hostname=off",
            "expected the option ssl_check_hostname to be true or false",
        ),
        ("rediss://h?ssl_ca_certs=/s3cret.pem", "the file of the option ssl_ca_certs is not there"),
        ("rediss://h?ssl_certfile=%00", "the file of the option ssl_certfile is not there"),
    ],
)
def test_a_wrong_url_is_refused_without_repeating_it(tmp_path: Path, url: str, message: str) -> None:
    """At its place, with what was expected; read from the environment, the variable is named too."""
    assert refused(tmp_path, url) == f"sidecar.yaml:2: store.url: {message}"
    from_outside = refused(tmp_path, "${REDIS_URL}", REDIS_URL=url)
    assert from_outside == f"sidecar.yaml:2: store.url: {message} (in ${{REDIS_URL}})"
    assert "s3cret" not in message


@pytest.mark.parametrize(
    ("url", "nodes"),
    [
        ("redis+cluster://h", [("h", 6379)]),
        ("redis+cluster://a:1,b_c:2,[::1]:3/", [("a", 1), ("b_c", 2), ("::1", 3)]),
        ("redis+cluster://user:p@ss,w%2Frd:@10.0.0.1", [("10.0.0.1", 6379)]),
        ("rediss+cluster://[2001:db8::1]?ssl_cert_reqs=none", [("2001:db8::1", 6379)]),
        ("redis+sentinel://a,b:7/main", [("a", 26379), ("b", 7)]),
        ("redis+sentinel://:p@a/main-1.x/3?sentinel_password=b%26c", [("a", 26379)]),
        (
            "rediss+sentinel://a/m?sentinel_username=u&sentinel_password=p&ssl_check_hostname=false",
            [("a", 26379)],
        ),
    ],
)
def test_the_url_of_several_servers_is_taken_as_it_is(
    tmp_path: Path, url: str, nodes: list[tuple[str, int]]
) -> None:
    """And a client can be made for it."""
    assert loaded(tmp_path, url) == url
    assert list(parse(url).nodes) == nodes
    assert connect(url, 1.0)


def test_what_a_url_of_several_servers_says_is_understood() -> None:
    """With everything that can stand in it."""
    cluster = parse("rediss+cluster://us%65r:p:@ss%2F@a:1,b:2?ssl_ca_certs=%2Fca.pem")
    assert (cluster.kind, cluster.tls, cluster.username, cluster.password) == (
        "cluster",
        True,
        "user",
        "p:@ss/",
    )
    assert cluster.options == {"ssl_ca_certs": "/ca.pem"}
    sentinel = parse("redis+sentinel://:pass@a:1/main/2?sentinel_password=other")
    assert (sentinel.username, sentinel.password, sentinel.service) == (None, "pass", "main")
    assert (sentinel.database, sentinel.options) == (2, {"sentinel_password": "other"})
    assert "pass" not in repr(sentinel)


SERVERS = "expected redis+cluster://host:port,host:port or redis+sentinel://host:port,…/name"
SERVER = "expected host:port,host:port; characters such as / ? in a password are %-encoded"
PRIMARY = "expected the name of the primary after the hosts: redis+sentinel://host:port/name"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis+cluster://", SERVER),
        ("redis+cluster://a,,b", SERVER),
        ("redis+cluster://a:0", SERVER),
        ("redis+cluster://a:65536", SERVER),
        ("redis+cluster://user:s3cret/x@a", SERVER),
        ("redis+sentinel://user:12?s3cret@a/main", PRIMARY),
        ("redis+cluster://[a]", BRACKETS),
        ("redis+cluster://[1::2::3]", BRACKETS),
        ("redis+cluster://a/1", "expected nothing after the hosts: a cluster has one database"),
        (
            "redis+cluster://a /",
            "expected no spaces and no control characters; percent-encode those of a password",
        ),
        ("redis+cluster://:s3#cret@a", "expected no '#'; in a password it is written %23"),
        ("redis+sentinel://a", PRIMARY),
        ("redis+sentinel://a/b c".replace(" ", "%20"), PRIMARY),
        ("redis+sentinel://a/main/x", "expected the number of a database after the name, or nothing"),
        ("redis+sentinel://a/main/1/2", "expected the number of a database after the name, or nothing"),
        ("redis+sentinel://a/m?ssl_cert_reqs=none&ssl_cert_reqs=none", "expected each option once"),
        (
            "redis+cluster://a?sentinel_password=s3cret",
            "the options of sentinels belong to redis+sentinel://",
        ),
        ("redis+sentinel://a/m?sentinel_username=u", "the option sentinel_username needs sentinel_password"),
        ("redis+cluster://a?ssl_cert_reqs=none", "the option ssl_cert_reqs belongs to rediss+cluster://"),
        ("rediss+sentinel://a/m?ssl_ca_certs=/s3cret", "the file of the option ssl_ca_certs is not there"),
        ("redis+cluster://a?socket_timeout=1", "the option socket_timeout cannot be set here"),
        ("redis+cluster://a?db=1", TLS_OF_CLUSTER),
        ("redis+cluster://a?s3cret", TLS_OF_CLUSTER),
        ("redis+cluster:a", f"expected {STORES}"),
    ],
)
def test_a_wrong_url_of_several_servers_is_refused_without_repeating_it(
    tmp_path: Path, url: str, message: str
) -> None:
    """Like that of one."""
    assert refused(tmp_path, url) == f"sidecar.yaml:2: store.url: {message}"
    assert "s3cret" not in message


def test_files_for_tls_have_to_be_there(tmp_path: Path) -> None:
    """And a key is nothing without its certificate."""
    pem = tmp_path / "a.pem"
    pem.touch()
    file = quote(str(pem))
    url = f"rediss://h?ssl_ca_certs={file}&ssl_certfile={file}&ssl_keyfile={file}"
    assert loaded(tmp_path, url) == url
    assert "ssl_keyfile needs ssl_certfile" in refused(tmp_path, f"rediss://h?ssl_keyfile={file}")
    assert "is not there" in refused(tmp_path, f"rediss://h?ssl_ca_certs={quote(str(tmp_path))}")
