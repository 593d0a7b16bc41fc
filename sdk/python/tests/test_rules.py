"""The rules of both transports, without a connection and without a process."""

from __future__ import annotations

import dataclasses
import json
import pickle

import pytest

from stasis import errors
from stasis._core import EventReader, Request, Retries, Route, answer, outcome, problem, request, shown_url
from stasis._process import Ended, last_document, result, shown
from stasis._profile import OptionNames, Options, command, logged_detail

SENT = Request("GET", "/v1/subjects", {}, {}, None)


def test_a_path_is_quoted_and_what_is_none_is_left_out() -> None:
    route = Route(
        "GET", "/v1/subjects/{kind}/{id}", {"kind": "dir", "id": "a/b c@1"}, {"limit": None, "recursive": True}
    )
    sent = request(route)
    assert sent.path == "/v1/subjects/dir/a%2Fb%20c@1"
    assert sent.params == {"recursive": "true"}


def test_every_post_has_an_idempotency_key_and_an_if_match_is_quoted() -> None:
    first, second = (
        request(Route("POST", "/v1/leases", body={"id": "a", "ttl_ms": None}, if_match=7)) for _ in range(2)
    )
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]
    assert first.headers["if-match"] == '"7"'
    assert json.loads(first.content or b"") == {"id": "a"}
    own = request(Route("POST", "/v1/leases", idempotency_key="mine"))
    assert own.headers["idempotency-key"] == "mine"
    assert "idempotency-key" not in request(Route("GET", "/v1/leases")).headers


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("unauthorized", errors.Unauthorized),
        ("forbidden", errors.Forbidden),
        ("not_found", errors.NotFound),
        ("held", errors.LeaseHeld),
        ("ambiguous", errors.Ambiguous),
        ("lock_lost", errors.LockLost),
        ("diverged", errors.Diverged),
        ("precondition_failed", errors.PreconditionFailed),
        ("precondition_required", errors.PreconditionRequired),
        ("key_reused", errors.KeyReused),
        ("interrupted", errors.Interrupted),
        ("limit", errors.LimitExceeded),
        ("unreachable", errors.StoreUnreachable),
        ("denied", errors.AccessDenied),
        ("corrupt", errors.IntegrityFailed),
        ("unknown", errors.OutcomeUnknown),
    ],
)
def test_a_problem_is_the_exception_of_its_code(code: str, kind: type[errors.StasisError]) -> None:
    document = {"code": code, "status": 409, "detail": "why", "title": "what", "request_id": "r-1", "op_id": "o"}
    error = problem(SENT, 409, {}, json.dumps(document).encode())
    assert type(error) is kind
    assert (error.code, error.status, error.request_id) == (code, 409, "r-1")
    assert "why" in str(error) and "r-1" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.fields) == (kind, error.fields)


def test_every_code_of_the_service_has_an_exception() -> None:
    from pathlib import Path

    document = json.loads((Path(__file__).parent.parent / "openapi.json").read_text())
    codes = {one["const"] for one in document["components"]["schemas"]["ProblemCode"]["oneOf"]}
    assert codes <= errors.BY_CODE.keys()
    kinds = {one["const"] for one in document["components"]["schemas"]["ErrorKind"].get("oneOf", [])}
    assert {word.replace("_", "") for word in kinds} <= errors.CODE_OF_KIND.keys()


def test_a_full_store_and_a_full_quota_are_told_apart() -> None:
    def failed(message: str, code: str = "limit") -> errors.StasisError:
        return errors.error_of(errors.Failure(message=message, code=code))

    full = "tenant `acme` may store 1 bytes and has stored 17: there is no room for what is new in this snapshot"
    assert type(failed(full)) is errors.QuotaExceeded
    assert type(failed("`acme/a` has 3 snapshots, and tenant `acme` may have 3 of a profile")) is errors.QuotaExceeded
    assert type(failed("could not save: the store is full")) is errors.StoreFull
    assert type(failed("the snapshot is pinned")) is errors.LimitExceeded


def test_only_what_says_that_nothing_was_done_is_asked_again() -> None:
    retries = Retries(attempts=3, first_pause=0.5)

    def failed(code: str, status: int, after: str = "") -> errors.StasisError:
        return problem(SENT, status, {"retry-after": after}, json.dumps({"code": code, "status": status}).encode())

    assert retries.pause(1, failed("retry", 503)) == 0.5
    assert retries.pause(2, failed("unreachable", 503)) == 1.0
    assert retries.pause(1, failed("too_many_requests", 429, "3")) == 3.0
    assert retries.pause(3, failed("retry", 503)) is None
    for code, status in (("unknown", 500), ("internal", 500), ("timed_out", 504), ("held", 409), ("denied", 502)):
        assert retries.pause(1, failed(code, status)) is None
    assert retries.pause(1, errors.ServerUnreachable(errors.Failure(message="", code="server_unreachable"))) is None


def test_what_is_no_stasis_is_said_so() -> None:
    with pytest.raises(errors.UnexpectedAnswer):
        answer(SENT, 200, {}, b"<html>")
    assert isinstance(problem(SENT, 500, {}, b"<html>"), errors.UnexpectedAnswer)
    assert isinstance(problem(SENT, 401, {}, b""), errors.Unauthorized)


def test_events_are_read_line_by_line() -> None:
    reader = EventReader()
    lines = [": still there", "", "event: progress", 'data: {"a":', "data: 1}", "", "data: x", ""]
    events = [event for event in map(reader.line, lines) if event]
    assert events == [("progress", '{"a":\n1}'), ("message", "x")]


def test_an_operation_that_failed_raises_its_problem() -> None:
    row = {"operation_id": "5f", "route": "fork_subject", "state": "failed"}
    with pytest.raises(errors.NotFound, match="fork_subject"):
        outcome({**row, "problem": {"code": "not_found", "detail": "no such profile"}}, lambda answer: answer)
    with pytest.raises(errors.Interrupted):
        outcome({**row, "state": "interrupted"}, lambda answer: answer)
    assert outcome({**row, "state": "done", "answer": 7}, lambda answer: answer) == 7


def test_the_result_of_a_command_is_its_document_and_its_error_is_typed() -> None:
    ok = Ended(0, b'the browser says hello\n{"schema":"stasis.profile.run/1"}\n', b"")
    assert result(["profile", "run"], ok) == {"schema": "stasis.profile.run/1"}
    document = {
        "schema": "stasis.error/1",
        "error": {
            "kind": "conflict",
            "exit_code": 4,
            "message": "could not acquire",
            "causes": ["held by run x"],
            "hint": "wait",
            "holder": {"holder_run_id": "x", "holder_host": "h", "expires_at_ms": 5},
        },
    }
    with pytest.raises(errors.LeaseHeld, match="held by run x") as caught:
        result(["profile", "run", "acme/alice"], Ended(104, json.dumps(document, indent=2).encode(), b""))
    holder = caught.value.holder
    assert holder is not None and (holder.holder_run_id, holder.holder_host, holder.expires_at_ms) == ("x", "h", 5)
    assert (caught.value.hint, caught.value.exit_code, caught.value.code) == ("wait", 104, "held")


def test_a_command_that_says_nothing_is_known_by_its_exit_code() -> None:
    with pytest.raises(errors.StoreUnreachable, match="no route"):
        result(["save"], Ended(7, b"", b"error: no route\n"))
    with pytest.raises(errors.LockLost):
        result(["profile", "run"], Ended(105, b"", b""))
    assert last_document(b"no json") is None


def test_a_message_has_the_verbs_of_a_command_and_nothing_else() -> None:
    assert shown(["lease", "renew", "acme/alice", "--token=7.secret"]) == "stasis lease renew"


def test_the_command_of_a_run_has_its_options() -> None:
    words = command("acme/alice", Options(dir="/d", wait=1.5, chrome_major=131, accept_shrink=True, linger=0.25))
    assert words[:3] == ["profile", "run", "acme/alice"]
    assert {"--dir=/d", "--wait=2s", "--chrome-major=131", "--accept-shrink", "--linger=250ms"} <= set(words)
    assert words[-1] == "{dir}"


def test_options_and_their_keyword_arguments_are_the_same() -> None:
    options = {one.name: one.type for one in dataclasses.fields(Options)}
    named = {name: getattr(one, "__forward_arg__", one) for name, one in OptionNames.__annotations__.items()}
    assert options == named


def test_an_address_is_shown_without_a_password() -> None:
    assert shown_url("http://ada:secret@127.0.0.1:7070/") == "http://127.0.0.1:7070"


def test_why_a_profile_is_fresh_stands_in_the_log() -> None:
    entry = {"level": "WARN", "fields": {"message": "the profile is a fresh one", "detail": "its digest is wrong"}}
    assert logged_detail(b"talk\n" + json.dumps(entry).encode() + b"\n") == "its digest is wrong"
    assert logged_detail(b"talk\n{}\n") is None
