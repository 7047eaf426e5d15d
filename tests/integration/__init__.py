"""Tests that run real servers and proxies."""
