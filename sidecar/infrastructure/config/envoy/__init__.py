"""Checking Envoy configurations."""
