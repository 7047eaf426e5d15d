"""The store, on real servers."""
