"""The configuration: YAML files in, settings and clients out, or every problem with its file and line."""

from sidecar.infrastructure.config.listen import Endpoint
from sidecar.infrastructure.config.loading import Configuration, load
from sidecar.infrastructure.config.problems import ConfigurationError, Problem
from sidecar.infrastructure.config.schema import Settings, json_schema

__all__ = ["Configuration", "ConfigurationError", "Endpoint", "Problem", "Settings", "json_schema", "load"]
