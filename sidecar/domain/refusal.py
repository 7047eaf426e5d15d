"""How one rule wants its refusals said, where it has a way of its own."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sidecar.domain.errors import InvalidValue, about, out_of_bounds

MAX_BODY = 4096
MAX_CONTENT_TYPE = 128
_TCHARS = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
#: RFC 9110 8.3.1. A parameter ends at its semicolon, so that there is one way to read it.
MEDIA_TYPE = rf"{_TCHARS}/{_TCHARS}(?:; ?{_TCHARS}=(?:{_TCHARS}|\"[ !#-\[\]-~]*\"))*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What callers get when this rule refuses. Raises `InvalidValue` naming every wrong field.

    A 5xx is no refusal: proxies take it for a limiter that is broken, and may let the request pass.
    """

    status: int | None = field(
        default=None,
        metadata=about("400 to 499; left out: 429, and 403 of a block rule.", ge=400, le=499),
    )
    body: str | None = field(
        default=None, metadata=about(f"At most {MAX_BODY} characters; left out: problem+json.")
    )
    content_type: str | None = field(
        default=None, metadata=about("Of the body; left out: text/plain; charset=utf-8.")
    )

    def __post_init__(self) -> None:
        if found := [*out_of_bounds(self), *self._problems()]:
            raise InvalidValue(found)

    def _problems(self) -> Iterator[tuple[str, str]]:
        if self.status in (401, 407):
            yield "status", f"expected no {self.status}, which asks callers to say who they are"
        if self.body is not None and len(self.body) > MAX_BODY:
            yield "body", f"expected at most {MAX_BODY} characters, got {len(self.body)}"
        if self.content_type is not None:
            if len(self.content_type) > MAX_CONTENT_TYPE:
                yield "content_type", f"expected at most {MAX_CONTENT_TYPE} characters"
            elif not re.fullmatch(MEDIA_TYPE, self.content_type):
                yield "content_type", f"expected type/subtype, got {self.content_type!r}"
            elif self.body is None:
                yield "content_type", "has no meaning without a body"
