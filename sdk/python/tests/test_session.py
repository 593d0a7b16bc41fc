"""Sessions: saved, put to sleep, and woken elsewhere."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Host, Hosts
from stasis import Session, errors


@pytest.fixture
def sandbox() -> Iterator[subprocess.Popen[bytes]]:
    """The process of an agent, which does nothing."""
    process = subprocess.Popen(["sleep", "300"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def workspace(place: Path) -> Path:
    (place / "outputs").mkdir(parents=True)
    (place / "outputs" / "report.txt").write_text("half done")
    return place


def test_a_session_sleeps_and_wakes_on_another_host(
    hosts: Hosts, tmp_path: Path, sandbox: subprocess.Popen[bytes]
) -> None:
    one = Session("acme/42", host="one", local=hosts("one").local)
    registered = one.register(workspace(tmp_path / "work"), roots=["outputs"], driver="process", pid=sandbox.pid)
    assert registered.state == "running"
    one.heartbeat()
    assert one.save().snapshot_id
    slept = one.sleep()
    assert slept.problem is None and slept.saved is not None
    assert sandbox.wait(10) != 0

    other = Session("acme/42", host="two", local=hosts("two").local)
    woken = other.wake(
        tmp_path / "elsewhere", driver="command", start_command="true", health_command="true", terminate_command="true"
    )
    assert woken.files == 1
    assert (tmp_path / "elsewhere" / "outputs" / "report.txt").read_text() == "half done"
    fork = other.fork("acme/43")
    assert str(fork.session).endswith("43")
    assert other.show().raw["schema"] == "stasis.session.show/1"


def test_a_session_that_is_not_there(host: Host) -> None:
    session = Session("acme/nope", local=host.local)
    with pytest.raises(errors.NotFound):
        session.show()
    with pytest.raises(errors.NotFound):
        session.sleep()
