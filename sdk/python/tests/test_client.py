"""The clients, against a real service."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from conftest import Host, Server, serving
from stasis import AsyncClient, Client, Directory, Local, Retries, errors
from stasis.models import RequestProgress


def saved_directory(server: Server, text: str = "hello") -> tuple[Path, str]:
    """A directory beneath the root of the server, saved: where it is, and what the service calls it."""
    place = server.root / "notes"
    place.mkdir(exist_ok=True)
    (place / "a.txt").write_text(text)
    saved = Directory(place, local=server.host.local).save("first")
    return place, str(saved.project)


def test_what_is_saved_is_listed_shown_and_read(server: Server, tmp_path: Path) -> None:
    _, name = saved_directory(server)
    with server.client(scope="read") as client:
        assert client.healthz().status == "ok"
        assert [(one.kind, one.id) for one in client.list_subjects().items] == [("dir", name)]
        assert client.show_subject("dir", name).snapshots == 1
        files = client.list_files("dir", name, "latest").items
        assert [one.path for one in files] == ["a.txt"]
        assert client.read_file("dir", name, "latest", "a.txt") == b"hello"
        target = client.download("dir", name, "latest", "a.txt", tmp_path / "out.txt")
        assert target.read_bytes() == b"hello"
        with pytest.raises(errors.NotFound):
            client.download("dir", name, "latest", "nope.txt", tmp_path / "nope.txt")
        assert not list(tmp_path.glob("*nope*")) and not list(tmp_path.glob(".*part"))


async def test_the_asynchronous_client_does_the_same(server: Server) -> None:
    _, name = saved_directory(server)
    async with AsyncClient(server.url, token=server.token()) as client:
        assert (await client.show_token()).tenant == "default"
        assert [one.id for one in (await client.list_subjects()).items] == [name]
        assert await client.read_file("dir", name, "latest", "a.txt") == b"hello"
        with pytest.raises(errors.NotFound):
            await client.show_subject("dir", "nope")


def test_an_operation_is_followed_to_its_end(server: Server) -> None:
    place, name = saved_directory(server)
    (place / "b.txt").write_text("more")
    seen: list[RequestProgress] = []
    with server.client(scope="write", on_host=True) as client:
        operation = client.save_subject("dir", name, path=str(place), message="over HTTP")
        answer = operation.wait(seen.append)
        assert answer["snapshot"] and operation.state == "done"
        assert seen and seen[0].raw["state"] == "running"
        assert client.operation(operation.id).wait() == answer
        assert len(client.list_snapshots("dir", name).items) == 2


async def test_an_operation_is_waited_for_without_a_thread(server: Server) -> None:
    place, name = saved_directory(server)
    async with AsyncClient(server.url, token=server.token(on_host=True)) as client:
        operation = await client.restore_snapshot("dir", name, "latest", to=str(server.root / "again"), confirm=True)
        await operation.wait()
    assert (server.root / "again" / "a.txt").read_text() == (place / "a.txt").read_text()


def test_an_operation_that_fails_raises_what_it_failed_with(server: Server) -> None:
    _, name = saved_directory(server)
    with server.client(on_host=True) as client:
        operation = client.restore_snapshot("dir", name, "latest", to=str(server.root / "notes"), confirm=True)
        with pytest.raises(errors.StasisError) as caught:
            operation.wait()
    assert operation.state == "failed" and caught.value.code
    assert (server.root / "notes" / "a.txt").read_text() == "hello"


def test_the_same_key_is_the_same_request(server: Server) -> None:
    with server.client(scope="write") as client:
        first = client.acquire_lease(id="alice@131", run_id="r-1", idempotency_key="k-1")
        again = client.acquire_lease(id="alice@131", run_id="r-1", idempotency_key="k-1")
        assert first.token == again.token
        with pytest.raises(errors.KeyReused):
            client.acquire_lease(id="alice@131", run_id="r-2", idempotency_key="k-1")


def test_a_lease_that_another_run_holds_names_its_holder(server: Server) -> None:
    with server.client(scope="write") as client:
        lease = client.acquire_lease(id="alice@131", run_id="r-1", host="east-1", ttl_ms=60_000)
        with pytest.raises(errors.LeaseHeld) as caught:
            client.acquire_lease(id="alice@131", run_id="r-2")
        holder = caught.value.holder
        assert holder is not None
        assert (holder.holder_run_id, holder.holder_host) == ("r-1", "east-1")
        assert holder.expires_at_ms > holder.acquired_at_ms
        assert caught.value.hint and "r-1" in caught.value.hint
        client.renew_lease("alice@131", token=lease.token)
        client.release_lease("alice@131", token=lease.token)
        with pytest.raises(errors.LockLost):
            client.renew_lease("alice@131", token=lease.token)


def test_what_destroys_names_the_generation_that_it_saw(server: Server) -> None:
    place, name = saved_directory(server)
    (place / "a.txt").write_text("second")
    first = server.host.local.run("log", "--", str(place))["items"][-1]["snapshot"]
    Directory(place, local=server.host.local).save()
    with server.client() as client:
        plan = client.delete_subject_snapshot("dir", name, first)
        assert plan.etag is not None
        with pytest.raises(errors.PreconditionRequired):
            client.delete_subject_snapshot("dir", name, first, confirm=True)
        with pytest.raises(errors.PreconditionFailed) as caught:
            client.delete_subject_snapshot("dir", name, first, confirm=True, if_match=plan.etag - 1)
        assert caught.value.generation == plan.etag
        client.delete_subject_snapshot("dir", name, first, confirm=True, if_match=plan.etag)
        assert len(client.list_snapshots("dir", name).items) == 1


def test_a_wrong_token_and_one_that_does_not_suffice(server: Server) -> None:
    with Client(server.url, token="stasis_1f0c2b7a9d3e4455_wrong") as client:
        with pytest.raises(errors.Unauthorized) as caught:
            client.list_subjects()
        assert "wrong" not in str(caught.value) and "wrong" not in repr(client)
        assert caught.value.hint and caught.value.request_id and caught.value.status == 401
    with Client(server.url) as client, pytest.raises(errors.Unauthorized):
        client.list_subjects()
    with server.client(scope="read") as client, pytest.raises(errors.Forbidden):
        client.acquire_lease(id="alice@131")


def test_what_belongs_to_another_tenant_is_not_there(server: Server) -> None:
    _, name = saved_directory(server)
    with server.client(tenant="rival") as client:
        assert client.list_subjects().items == []
        with pytest.raises(errors.NotFound):
            client.show_subject("dir", name)


def test_a_request_that_comes_too_fast_is_made_again(host: Host, tmp_path: Path) -> None:
    with serving(host, tmp_path / "root", "--rate=1") as server:
        token = server.token()
        with (
            Client(server.url, token=token, retries=Retries(attempts=1)) as hasty,
            pytest.raises(errors.TooManyRequests),
        ):
            for _ in range(20):
                hasty.show_token()
        with Client(server.url, token=token, retries=Retries(attempts=6)) as patient:
            begun = time.monotonic()
            assert [patient.show_token().tenant for _ in range(3)] == ["default"] * 3
            assert time.monotonic() - begun > 0.5


def test_an_operation_is_known_to_every_service_on_the_store(server: Server) -> None:
    place, name = saved_directory(server)
    (place / "b.txt").write_text("more")
    with server.client(on_host=True) as client:
        operation = client.save_subject("dir", name, path=str(place))
        first = operation.wait()
        # Whoever asks later, and of another service on the same store, gets the same answer.
        with (
            serving(server.host, server.root / "other") as other,
            Client(other.url, token=server.token(on_host=True)) as another,
        ):
            assert another.operation(operation.id).wait() == first


def test_a_server_that_is_down_is_unreachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}", token="t") as client:
        with pytest.raises(errors.ServerUnreachable, match=f"127.0.0.1:{port}") as caught:
            client.list_subjects()
        assert caught.value.hint
        with pytest.raises(errors.ServerUnreachable) as caught:
            client.acquire_lease(id="alice@131")
        # With it the same request can be made again.
        assert caught.value.fields["idempotency_key"]


def test_a_tenant_at_its_quota_is_told_so(server: Server) -> None:
    place, name = saved_directory(server)
    server.host.run("tenant", "policy", "set", "default", "quotas.max_bytes=1")
    (place / "b.txt").write_text("more than one byte")
    with pytest.raises(errors.QuotaExceeded) as caught:
        Directory(place, local=server.host.local).save()
    assert caught.value.exit_code == 11
    with server.client(on_host=True) as client:
        with pytest.raises(errors.QuotaExceeded) as remote:
            client.save_subject("dir", name, path=str(place)).wait()
        assert remote.value.code == "limit"


def test_a_binary_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(errors.BinaryNotFound, match="nowhere"):
        Local(binary=tmp_path / "nowhere")


def test_neither_the_store_nor_its_keys_are_shown(binary: str) -> None:
    store = "s3://bucket/x?endpoint=http://user:hunter2@127.0.0.1:9"
    local = Local(binary=binary, store=store, environment={"AWS_SECRET_ACCESS_KEY": "hunter2"})
    assert "hunter2" not in repr(local)
    with pytest.raises(errors.StasisError) as caught:
        local.run("list", "--nonsense=hunter3")
    assert type(caught.value) is errors.InvalidRequest and "stasis list" in str(caught.value)
