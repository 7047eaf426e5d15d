"""Tests: `unit` needs nothing but Python, `integration` runs real servers."""
