"""A rate-limiting authorization sidecar: proxies ask it about every request, it answers 200 or 429."""

__version__ = "0.1.0"
