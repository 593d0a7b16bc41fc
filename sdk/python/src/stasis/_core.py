"""The rules of the HTTP client, without a connection: what is sent, what an answer means, and what is done next.

Both clients do what this module says. It sends nothing, waits for nothing and asks no clock, so that its rules are tested by
themselves and cannot differ between the two.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

from ._model import ETAG
from ._version import __version__
from .errors import CODE_OF_STATUS, Failure, StasisError, error_of

ValueType = TypeVar("ValueType")

USER_AGENT = f"stasis-sdk-python/{__version__}"

# The codes that say that nothing was done and that asking again may help.
PASSING = frozenset({"retry", "unreachable", "too_many_requests"})


@dataclass(frozen=True)
class Retries:
    """How often a request is made again where the service says that this may help, and how long is waited in between."""

    attempts: int = 4
    first_pause: float = 0.5
    longest_pause: float = 10.0

    def pause(self, made: int, error: StasisError) -> float | None:
        """How long to wait before the next attempt, after so many; `None` if there is none."""
        if error.code not in PASSING or error.status is None or made >= self.attempts:
            return None
        asked = error.fields.get("retry_after")
        least = float(asked) if isinstance(asked, int) else 0.0
        doubled: float = self.first_pause * 2.0 ** (made - 1)
        return min(max(doubled, least), self.longest_pause)


@dataclass(frozen=True)
class Route:
    """One request, as the routes of the service are described."""

    method: str
    template: str
    path: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    if_match: int | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True)
class Request:
    """One request, as it is sent. Sent twice, it is the same request to the service."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    content: bytes | None


def request(route: Route) -> Request:
    """The request for a route. What is `None` is left out, which is how the service takes it."""
    path = route.template
    for name, value in route.path.items():
        text = str(value)
        if not text:
            raise error_of(Failure(message=f"{route.template}: `{name}` is empty", code="invalid_request"))
        path = path.replace("{" + name + "}", quote(text, safe="@~"))
    params = {name: _word(value) for name, value in route.query.items() if value is not None}
    headers = {"accept": "application/json, application/problem+json"}
    if route.if_match is not None:
        headers["if-match"] = f'"{route.if_match}"'
    content = None
    if route.method == "POST":
        headers["idempotency-key"] = route.idempotency_key or str(uuid.uuid4())
    if route.body is not None:
        headers["content-type"] = "application/json"
        content = json.dumps({name: value for name, value in route.body.items() if value is not None}).encode()
    return Request(route.method, path, params, headers, content)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def shown_url(url: str) -> str:
    """An address in a message: without a name and a password in it."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def doing(sent: Request) -> str:
    """What was asked for, in a message."""
    return f"{sent.method} {sent.path}"


def answer(sent: Request, status: int, headers: Mapping[str, str], content: bytes) -> Any:
    """What the service answered, or the error that it says."""
    if 200 <= status < 300:
        try:
            document = json.loads(content)
        except ValueError:
            raise _unexpected(sent, status, "the answer is no JSON") from None
        generation = headers.get("etag", "").strip('"')
        if isinstance(document, dict) and generation.isdigit():
            document[ETAG] = int(generation)
        return document
    raise problem(sent, status, headers, content)


def problem(sent: Request, status: int, headers: Mapping[str, str], content: bytes) -> StasisError:
    """The error of an answer that is none."""
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("code"), str):
        code = CODE_OF_STATUS.get(status)
        said = f"{doing(sent)} was answered with status {status} and no reason"
        return (
            error_of(Failure(message=said, code=code, status=status))
            if code
            else _unexpected(sent, status, "no reason")
        )
    after = headers.get("retry-after", "")
    if after.isdigit():
        document = {**document, "retry_after": int(after)}
    return error_of_problem(document, f"{doing(sent)} failed")


def error_of_problem(document: Mapping[str, Any], what: str) -> StasisError:
    """The error of a problem document; also of one that an operation ended with."""
    own = ("type", "title", "status", "code", "detail", "request_id", "hint")
    hint, request_id, status = document.get("hint"), document.get("request_id"), document.get("status")
    return error_of(
        Failure(
            message=f"{what}: {document.get('detail') or document.get('title')}",
            code=str(document.get("code")),
            hint=hint if isinstance(hint, str) else None,
            status=status if isinstance(status, int) else None,
            request_id=request_id if isinstance(request_id, str) else None,
            fields={name: value for name, value in document.items() if name not in own},
        )
    )


def _unexpected(sent: Request, status: int, why: str) -> StasisError:
    from .errors import UnexpectedAnswer

    said = f"{doing(sent)} was answered with status {status}: {why}"
    return UnexpectedAnswer(Failure(message=said, code="unexpected_answer", status=status))


def unreachable(sent: Request, base_url: str, why: Exception) -> StasisError:
    """The error of a request that nobody answered. What a POST did is found out by sending it again with the same key."""
    from .errors import ServerUnreachable

    key = sent.headers.get("idempotency-key")
    fields = {"idempotency_key": key} if key else {}
    reason = str(why) or type(why).__name__
    said = f"{doing(sent)} got no answer from {base_url}: {reason}"
    return ServerUnreachable(Failure(message=said, code="server_unreachable", fields=fields))


@dataclass
class EventReader:
    """Reads server-sent events line by line."""

    name: str = "message"
    data: list[str] = field(default_factory=list)

    def line(self, line: str) -> tuple[str, str] | None:
        """Takes the next line; an empty one ends an event, which is returned: its name and its data."""
        if not line:
            event = (self.name, "\n".join(self.data)) if self.data else None
            self.name, self.data = "message", []
            return event
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self.name = value
        elif name == "data":
            self.data.append(value)
        # A comment, which keeps the connection open, has an empty name.
        return None


def is_over(row: Mapping[str, Any]) -> bool:
    """Whether an operation has ended."""
    return row.get("state") in ("done", "failed", "interrupted")


def outcome(row: Mapping[str, Any], read: Callable[[Any], ValueType]) -> ValueType:
    """What an operation that has ended answered, or the error that it ended with."""
    what = f"operation {row.get('operation_id')} ({row.get('route')})"
    state = row.get("state")
    if state == "done":
        return read(row.get("answer"))
    document = row.get("problem")
    if isinstance(document, Mapping):
        raise error_of_problem(document, f"{what} failed")
    if state == "interrupted":
        said = f"{what} was interrupted: the service that did it is not heard of any more"
        raise error_of(Failure(message=said, code="interrupted"))
    raise error_of(Failure(message=f"{what} ended as `{state}`, without a reason", code="internal"))
