"""The commands: serve, check, recipe, schema, demo."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from sidecar import __version__, demo, event_loop
from sidecar.commands import check, recipe
from sidecar.commands.files import DEFAULTS, default_file, load_and_warn
from sidecar.infrastructure.config.loading import load
from sidecar.infrastructure.config.problems import ConfigurationError
from sidecar.infrastructure.config.schema import json_schema
from sidecar.infrastructure.redis.data_directory import StoreCannotStart
from sidecar.infrastructure.telemetry import logs
from sidecar.listening import CannotListen
from sidecar.main import Worker, serve
from sidecar.workers import supervise

_DESCRIPTION = """\
A rate-limiting authorization sidecar: a proxy asks it about every request, and it answers 200 or 429 by the
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


#: What a shell says of a program that SIGPIPE has ended.
_NOBODY_READS = 128 + 13


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Messages for people go to stderr."""
    try:
        try:
            return _run(arguments)
        finally:
            print(end="", flush=True)  # here, where it can still be told that nobody reads it
    except BrokenPipeError:
        return _unread()


def _run(arguments: Sequence[str] | None) -> int:
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
    serving.add_argument("-c", "--config", type=Path, metavar="FILE", help=DEFAULTS)
    # What a supervisor says to those it starts.
    serving.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    serving.add_argument("--store", help=argparse.SUPPRESS)
    serving.set_defaults(run=_serve)

    summary = "say everything that is wrong with a configuration"
    check.add_to(commands.add_parser("check", help=summary, description=check.DESCRIPTION))
    summary = "print the configuration of a proxy that fits this one"
    recipe.add_to(commands.add_parser("recipe", help=summary, description=recipe.DESCRIPTION))

    schema = commands.add_parser("schema", help="print the configuration's JSON Schema, for editors")
    schema.set_defaults(run=_schema)

    showing = commands.add_parser("demo", help="run a real Envoy in front of a sample service, and limit it")
    showing.add_argument(
        "--env-file", type=Path, metavar="FILE", help="NAME=VALUE lines for what the environment does not set"
    )
    showing.set_defaults(run=_demo)
    return parser


def _serve(options: argparse.Namespace) -> int:
    file = options.config or default_file()
    with event_loop.without_collections():
        # Of several processes, the one that started them has said it.
        configuration = load(file, os.environ) if options.worker else load_and_warn(file)
    settings = configuration.settings
    logs.set_up(settings.log_level, settings.app_env)
    if options.worker:
        event_loop.run(serve(configuration, worker=Worker(options.store)))
    elif settings.workers > 1:
        del configuration  # large, perhaps, and read again by each worker
        return asyncio.run(supervise(settings, file))
    else:
        event_loop.run(serve(configuration))
    return 0


def _schema(options: argparse.Namespace) -> int:
    print(json.dumps(json_schema(), indent=2))
    return 0


def _demo(options: argparse.Namespace) -> int:
    return demo.run(options.env_file)


def _unread() -> int:
    """As after `| head`: no error. What is still to be written goes nowhere, or Python would tell of it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
    return _NOBODY_READS


def _fail(code: int, *messages: str) -> int:
    for message in messages:
        print(message, file=sys.stderr)
    return code
