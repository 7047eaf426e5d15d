"""What a row of the table of routes says: enough to serve it and to describe it."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from aiohttp import web
from aiohttp.typedefs import Handler

from sidecar.infrastructure.admin.access import only_reads
from sidecar.infrastructure.validation import Rejected

Schema = dict[str, Any]
Expect = Callable[[web.Request], Awaitable[None]]


class Tag(StrEnum):
    """The sections of the document, in their order."""

    CLIENTS = "clients"
    POLICIES = "policies"
    COUNTERS = "counters"
    OPERATIONS = "operations"
    OPEN = "probes"
    DOCUMENT = "document"
    DATA = "data port"


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    schema: Schema
    description: str
    where: Literal["query", "header", "path"] = "query"
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What a request carries: JSON that reads as `kind`, as one whose id may be left out, since the path has
    it, or as a merge patch (RFC 7396) of one.
    """

    kind: Any
    form: Literal["whole", "named", "patch"] = "whole"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: `body` is a type, or `None` where there is none or it is no JSON; `or_problem`: it may be
    a problem instead.
    """

    description: str
    body: Any = None
    content_type: str | None = None
    headers: tuple[str, ...] = ()
    or_problem: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One method at one path. `handler` is `None` for what the data port serves.

    `errors` are those that are this operation's own; those that follow from the rest (a body, a key) are
    not repeated in it.
    """

    method: str
    path: str
    handler: Handler | None
    tag: Tag
    summary: str
    #: By status, or by the first digit of several (`4XX`).
    answers: Mapping[int, Reply] | Mapping[int | str, Reply]
    errors: tuple[int, ...] = ()
    body: Body | None = None
    parameters: tuple[Parameter, ...] = ()
    #: Viewers may send it although it is a POST.
    only_reads: bool = False
    #: Every other method is answered as this one.
    any_method: bool = False

    @property
    def query(self) -> frozenset[str] | None:
        """The parameters that its query may have, each once; `None` where nothing depends on the query.

        Whoever deletes with a misspelt parameter would delete more than was meant.
        """
        names = frozenset(each.name for each in self.parameters if each.where == "query")
        return names if names or self.method == "DELETE" else None

    def route(self, expect: Expect) -> web.RouteDef:
        """As the router takes it; HEAD comes with GET."""
        if self.handler is None:
            raise ValueError(f"{self.path} is not served here")
        handler = self.handler if self.query is None else _checking_query(self.handler, self.query)
        handler = only_reads(handler) if self.only_reads else handler
        options: dict[str, Any] = {"expect_handler": expect}
        if self.method == "GET":
            return web.get(self.path, handler, **options)
        return web.route(self.method, self.path, handler, **options)


def _checking_query(handler: Handler, names: frozenset[str]) -> Handler:
    async def checking(request: web.Request) -> web.StreamResponse:
        given = Counter(name for name, _ in request.query.items())
        problems = {name: "unknown parameter" for name in given if name not in names}
        problems |= {
            name: f"expected it once, got it {given[name]} times" for name in names if given[name] > 1
        }
        if problems:
            raise Rejected(((name,), problem) for name, problem in sorted(problems.items()))
        return await handler(request)

    return checking
