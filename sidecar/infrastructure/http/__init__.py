"""The data port: proxies and callers ask here whether a request may pass."""
