"""The files that the commands fall back on: a wheel has them here, a checkout where people look for them."""

from pathlib import Path

_HERE = Path(__file__).parent
_CHECKOUT = _HERE.parents[1]
_IN_CHECKOUT = {"sidecar.yaml": _CHECKOUT / "config" / "sidecar.yaml", "envoy.yaml": _CHECKOUT / "envoy.yaml"}


def asset(name: str) -> Path:
    """Where `sidecar.yaml` or `envoy.yaml` is; any other name is a `KeyError`."""
    packaged = _HERE / name
    return packaged if packaged.exists() else _IN_CHECKOUT[name]
