import pytest, uuid
from collections import Counter
from collections.abc import Iterator
from tests.proxies.all import PROXIES
from tests.proxies.lab import Lab, lab
from tests.proxies.spoofing import *

@pytest.fixture(scope="module", params=PROXIES, ids=lambda proxy: str(proxy.name))
def laboratory(request, tmp_path_factory):
    with lab(request.param, tmp_path_factory.mktemp("lab"), config=CONFIG) as running:
        yield running

def one(lab, target, fields):
    try:
        return lab.ask("GET", target, fields).status
    except AssertionError as e:
        return str(e)[:60]

def test_x(laboratory: Lab) -> None:
    told = tell(laboratory, 1000)
    print("\n", laboratory.proxy.name, statuses(told), len(laboratory.asked))
    print(Counter((t.lie, t.status) for t in told if t.status not in (200,429)))
    for name in hostile(0):
        print(name, Counter((route, one(laboratory, route, hostile(n)[name])) for n in range(3) for route in ROUTES if route!="/by-session" or name != "x" ))
    u=uuid.uuid4().hex
    for name,v in {"no utf":"\xff\xfe"+u, "no utf2":"\xfe\xff"+u, "big":u+"x"*8000,"big2":u+"x"*7999+"y","utf8":"é"+u, "ctl": "\x01"+u, "sep":u+":|"}.items():
        print(name, Counter(one(laboratory,"/by-session",[("X-Session-Id",v)]) for _ in range(25)))
