"""What can go wrong, as types.

There is one set of exceptions, whether a request went to `stasis serve` or a command was run on this host. Which one is
raised follows from one word, `code`, which the service and the binary promise not to change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ._models import Lock

__all__ = [
    "AccessDenied",
    "Ambiguous",
    "BinaryNotFound",
    "Cancelled",
    "CommandFailed",
    "Conflict",
    "Diverged",
    "Forbidden",
    "IntegrityFailed",
    "Interrupted",
    "InvalidRequest",
    "KeyReused",
    "LeaseHeld",
    "LimitExceeded",
    "LockLost",
    "MisdirectedRequest",
    "NotFound",
    "OutcomeUnknown",
    "PreconditionFailed",
    "PreconditionRequired",
    "QuotaExceeded",
    "RequestTimeout",
    "ServerError",
    "ServerUnreachable",
    "StasisError",
    "StoreFull",
    "StoreUnreachable",
    "TooLarge",
    "TooManyRequests",
    "TryAgain",
    "Unauthorized",
    "UnexpectedAnswer",
]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What is known of a failure, wherever it comes from."""

    message: str
    code: str
    hint: str | None = None
    status: int | None = None
    exit_code: int | None = None
    request_id: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)


class StasisError(Exception):
    """Something failed: the message says what, `code` which kind of failure it is, `hint` what to do now."""

    # What to do where the answer itself does not say it.
    usual_hint: ClassVar[str | None] = None

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        self.code = failure.code
        """The kind of failure, in a word that does not change."""
        self.message = failure.message
        self.status = failure.status
        """The status of an HTTP answer."""
        self.exit_code = failure.exit_code
        """The exit code of a command."""
        self.request_id = failure.request_id
        """Under which the log of the service says more."""
        self.fields = failure.fields
        """What there is to know besides, each under its own name."""
        self.hint = failure.hint or self.usual_hint
        """What to do now."""
        super().__init__(failure.message)

    def __str__(self) -> str:
        where = f" (request {self.request_id})" if self.request_id else ""
        hint = f"\nhint: {self.hint}" if self.hint else ""
        return f"{self.message}{where}{hint}"

    def __reduce__(self) -> tuple[type[StasisError], tuple[Failure]]:
        # An error of a worker process arrives as what it was.
        return type(self), (self.failure,)


class ServerUnreachable(StasisError):
    """Nobody answers at the address of the service, or the connection broke before there was an answer."""

    usual_hint = "check the address and that `stasis serve` runs there"


class InvalidRequest(StasisError):
    """The request, or the command line, is not one that is understood."""


class Unauthorized(StasisError):
    """There is no token, or it is unknown, expired or revoked."""

    usual_hint = "make a token with `stasis token create --tenant TENANT --scope SCOPE`, where the store is"


class Forbidden(StasisError):
    """The token counts, and does not allow this."""

    usual_hint = (
        "use a token with the scope that the route needs; what lies on the server's host needs one made with --host"
    )


class MisdirectedRequest(StasisError):
    """The service is not called by the name in the address."""

    usual_hint = "use an address that the service knows, or start it with --allow-host"


class NotFound(StasisError):
    """There is no such thing, or none that belongs to the tenant of the token."""

    usual_hint = "check the name, and that the token is one of the tenant that it belongs to"


class Conflict(StasisError):
    """Something else stands in the way."""


class LeaseHeld(Conflict):
    """Another run holds the lease, or another process is at it."""

    @property
    def holder(self) -> Lock | None:
        """Who holds it and until when."""
        found = self.fields.get("holder")
        return Lock.from_json(found) if isinstance(found, Mapping) else None

    @property
    def usual_hint(self) -> str | None:  # type: ignore[override]
        holder = self.holder
        if holder is None:
            return "try again when the other one has ended"
        return f"run {holder.holder_run_id} on {holder.holder_host or 'a host without a name'} holds it: wait for it, or until it expires"


class Ambiguous(Conflict):
    """The beginning of a name fits several things."""

    usual_hint = "give more of the name"

    @property
    def candidates(self) -> list[str]:
        """What it may mean."""
        return [str(one) for one in self.fields.get("candidates", [])]


class Diverged(Conflict):
    """Another snapshot became the active one meanwhile."""

    usual_hint = "look at the subject again, then decide which snapshot counts"


class Interrupted(Conflict):
    """Whoever did it is not heard of any more; what was done is not known."""

    usual_hint = "look at the subject, then ask again with another idempotency key"


class LockLost(Conflict):
    """The lease is not the caller's any more."""

    usual_hint = "stop working on it: another run may own it. Acquire the lease again to go on"


class PreconditionFailed(StasisError):
    """It was changed since it was looked at."""

    usual_hint = "look again, then name the generation that is there now"

    @property
    def generation(self) -> int | None:
        """The generation that is there now."""
        found = self.fields.get("generation")
        return found if isinstance(found, int) else None


class PreconditionRequired(StasisError):
    """What destroys must name the generation that was seen."""

    usual_hint = "ask for the plan first (without `confirm`), and pass its generation as `if_match`"


class KeyReused(StasisError):
    """The idempotency key was used for another request."""

    usual_hint = "take a new key for each request"


class TooLarge(StasisError):
    """The request has more bytes than are taken."""


class LimitExceeded(StasisError):
    """A limit, or a policy of the tenant, does not allow it."""


class QuotaExceeded(LimitExceeded):
    """The tenant stores as much as its quota allows."""


class StoreFull(LimitExceeded):
    """The store has no room left."""


class TooManyRequests(StasisError):
    """Too many requests at once, or in a second; asking again was tried."""


class TryAgain(StasisError):
    """Nothing was done, and it may work a little later; asking again was tried."""


class StoreUnreachable(StasisError):
    """The store does not answer."""


class AccessDenied(StasisError):
    """The store does not let us in, or does not do what is needed."""


class IntegrityFailed(StasisError):
    """What is stored is damaged. Nothing was changed, and nothing of it was handed out."""


class OutcomeUnknown(StasisError):
    """Whether it was done is not known."""

    @property
    def op_id(self) -> str | None:
        """What `stasis operation show` takes."""
        found = self.fields.get("op_id")
        return found if isinstance(found, str) else None

    @property
    def usual_hint(self) -> str | None:  # type: ignore[override]
        return (
            f"ask with `stasis operation show {self.op_id}`"
            if self.op_id
            else "look at the subject before asking again"
        )


class RequestTimeout(StasisError):
    """It took too long; what was begun comes to its end all the same."""

    usual_hint = "look at the subject before asking again"


class Cancelled(StasisError):
    """It was interrupted, and changed nothing that counts."""


class CommandFailed(StasisError):
    """A check said no, or a command of the user's failed."""


class ServerError(StasisError):
    """A mistake of the service or the binary."""

    usual_hint = "the log of the service has the reason under the id of the request"


class UnexpectedAnswer(StasisError):
    """What answered is no Stasis, or one that this version of the SDK does not understand."""

    usual_hint = "check the address, and that the SDK is as new as the service"


class BinaryNotFound(StasisError):
    """There is no `stasis` binary on this host."""

    usual_hint = "install stasis, or name the binary: Local(binary=…) or the variable STASIS_BIN"


# Of a problem of the service, by its `code`.
BY_CODE: Mapping[str, type[StasisError]] = {
    "invalid_request": InvalidRequest,
    "method_not_allowed": InvalidRequest,
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "misdirected_request": MisdirectedRequest,
    "not_found": NotFound,
    "held": LeaseHeld,
    "ambiguous": Ambiguous,
    "lock_lost": LockLost,
    "diverged": Diverged,
    "precondition_failed": PreconditionFailed,
    "precondition_required": PreconditionRequired,
    "key_reused": KeyReused,
    "interrupted": Interrupted,
    "too_large": TooLarge,
    "limit": LimitExceeded,
    "too_many_requests": TooManyRequests,
    "retry": TryAgain,
    "unreachable": StoreUnreachable,
    "denied": AccessDenied,
    "corrupt": IntegrityFailed,
    "unknown": OutcomeUnknown,
    "request_timeout": RequestTimeout,
    "timed_out": RequestTimeout,
    "internal": ServerError,
    "cancelled": Cancelled,
    "failed": CommandFailed,
}

# The code of a failure of a command, by the `kind` of its error document.
CODE_OF_KIND: Mapping[str, str] = {
    "invalid": "invalid_request",
    "notfound": "not_found",
    "conflict": "held",
    "fenced": "lock_lost",
    "diverged": "diverged",
    "retry": "retry",
    "unreachable": "unreachable",
    "denied": "denied",
    "corrupt": "corrupt",
    "unknown": "unknown",
    "limit": "limit",
    "cancelled": "cancelled",
    "failed": "failed",
    "bug": "internal",
}

# The same where a command ended without a document.
CODE_OF_EXIT: Mapping[int, str] = {
    1: "failed",
    2: "invalid_request",
    3: "not_found",
    4: "held",
    5: "lock_lost",
    6: "diverged",
    7: "unreachable",
    8: "denied",
    9: "corrupt",
    10: "unknown",
    11: "limit",
    130: "cancelled",
}

# The code of an answer without a document, as of a proxy in between.
CODE_OF_STATUS: Mapping[int, str] = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    408: "request_timeout",
    412: "precondition_failed",
    413: "too_large",
    421: "misdirected_request",
    428: "precondition_required",
    429: "too_many_requests",
    504: "timed_out",
}


OVER_QUOTA = re.compile(r"may (store \d+ bytes|have \d+ of a profile)")
STORE_FULL = "the store is full"


def error_of(failure: Failure) -> StasisError:
    """The exception for a failure."""
    kind = BY_CODE.get(failure.code)
    if kind is None:
        kind = ServerError if (failure.status or 0) >= 500 else StasisError
    # One code stands for every limit; what the tenant or the store has no room for is told by the sentence alone.
    if kind is LimitExceeded and OVER_QUOTA.search(failure.message):
        kind = QuotaExceeded
    if kind in (LimitExceeded, AccessDenied) and STORE_FULL in failure.message:
        kind = StoreFull
    return kind(failure)
