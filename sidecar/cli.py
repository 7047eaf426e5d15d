"""The commands: serve, check, schema, demo."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from sidecar import __version__, demo
from sidecar.assets import asset
from sidecar.infrastructure.config.loading import Configuration, load
from sidecar.infrastructure.config.problems import ConfigurationError
from sidecar.infrastructure.config.schema import json_schema
from sidecar.infrastructure.redis.data_directory import StoreCannotStart
from sidecar.infrastructure.telemetry import logs
from sidecar.listening import CannotListen
from sidecar.main import serve

_DESCRIPTION = """\
A rate-limiting authorization sidecar: Envoy asks it about every request, and it answers 200 or 429 by the
rules of a YAML file, counted in Redis.
"""
_EXIT_CODES = """\
exit codes:
  0  all is well
  1  the configuration is wrong
  2  the command line is wrong
  3  an address to listen on is taken, or not to be had
  4  the embedded store cannot be started
  5  a part that the demo needs is missing or has failed
"""
_DEFAULT_FILES = ("sidecar.yaml", "config/sidecar.yaml", "/etc/ratelimit-sidecar/sidecar.yaml")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Messages for people go to stderr."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except ConfigurationError as error:
        return _fail(1, *map(str, error.problems))
    except CannotListen as error:
        return _fail(3, str(error))
    except StoreCannotStart as error:
        return _fail(4, str(error))
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sidecar",
        description=_DESCRIPTION,
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sidecar {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serving = commands.add_parser("serve", help="answer proxies on the data port, people on the admin port")
    files = ", ".join(_DEFAULT_FILES)
    serving.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help=f"default: the first of {files}, else built in"
    )
    serving.set_defaults(run=_serve)

    checking = commands.add_parser("check", help="say everything that is wrong with a configuration")
    checking.add_argument("file", type=Path, metavar="FILE")
    checking.set_defaults(run=_check)

    schema = commands.add_parser("schema", help="print the configuration's JSON Schema, for editors")
    schema.set_defaults(run=_schema)

    showing = commands.add_parser("demo", help="run a real Envoy in front of a sample service, and limit it")
    showing.add_argument(
        "--env-file", type=Path, metavar="FILE", help="NAME=VALUE lines for what the environment does not set"
    )
    showing.set_defaults(run=_demo)
    return parser


def _serve(options: argparse.Namespace) -> int:
    configuration = _load(options.config or _default_file())
    logs.set_up(configuration.settings.log_level, configuration.settings.app_env)
    asyncio.run(serve(configuration))
    return 0


def _check(options: argparse.Namespace) -> int:
    configuration = _load(options.file)
    rules = sum(len(client.rules) for client in configuration.clients)
    print(f"{options.file}: {_many(len(configuration.clients), 'client')}, {_many(rules, 'rule')}, no error")
    return 0


def _schema(options: argparse.Namespace) -> int:
    print(json.dumps(json_schema(), indent=2))
    return 0


def _demo(options: argparse.Namespace) -> int:
    return demo.run(options.env_file)


def _load(file: Path) -> Configuration:
    """Raises `ConfigurationError`; warnings go to stderr."""
    configuration = load(file, os.environ)
    for warning in configuration.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return configuration


def _default_file() -> Path:
    found = [path for path in map(Path, _DEFAULT_FILES) if path.exists()]
    return found[0] if found else asset("sidecar.yaml")


def _fail(code: int, *messages: str) -> int:
    for message in messages:
        print(message, file=sys.stderr)
    return code


def _many(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
