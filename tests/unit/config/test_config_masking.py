"""What `GET /v1/config` shows of the settings."""

import pytest

from sidecar.infrastructure.config.masking import masked
from sidecar.infrastructure.config.schema import Store


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://:SUPERSECRET@h:1", "redis://***@h:1"),
        ("redis://:SUPER@SECRET@h:1", "redis://***@h:1"),
        ("rediss://user:@SUPER@@SECRET@h:1/2?ssl_cert_reqs=none", "rediss://***@h:1/2?ssl_cert_reqs=none"),
        ("redis://h/0?ssl_ca_certs=/a@b", "redis://h/0?ssl_ca_certs=/a@b"),
        ("unix://:SUPER@SECRET@/run/a@b.sock", "unix://***@/run/a@b.sock"),
        ("redis+cluster://u:SUPER@SECRET@a:1,b:2", "redis+cluster://***@a:1,b:2"),
        (
            "redis+sentinel://:SECRET@a,b/m/0?sentinel_username=u&sentinel_password=SECRET&ssl_cert_reqs=none",
            "redis+sentinel://***@a,b/m/0?sentinel_username=u&sentinel_password=***&ssl_cert_reqs=none",
        ),
        ("embedded:", "embedded:"),
    ],
)
def test_of_a_store_it_is_shown_where_it_is_and_not_who_connects(url: str, shown: str) -> None:
    """All of a user and a password, up to the last @ of the address."""
    assert masked(Store.model_construct(url=url))["url"] == shown
