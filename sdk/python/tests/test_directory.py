"""Directories: saves, checkpoints, going back, forks and races, with the real binary."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from conftest import Host
from stasis import AsyncAttempt, AsyncDirectory, AsyncLocal, Attempt, Directory, errors


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "main.py").write_text("print('one')\n")
    return made


@pytest.fixture
def directory(place: Path, host: Host) -> Directory:
    return Directory(place, local=host.local)


def test_a_save_is_restored_and_a_restore_undone(directory: Directory, place: Path, tmp_path: Path) -> None:
    first = directory.save("first", labels={"run": "r-1"})
    assert first.files == 1 and first.is_latest
    (place / "main.py").write_text("print('two')\n")
    (place / "new.txt").write_text("new")
    assert {one.path for one in directory.diff().items} == {"main.py", "new.txt"}
    assert "+print('two')" in (directory.diff(patch=True).patch or "")

    restored = directory.restore("first")
    assert restored.safety_snapshot_id
    assert (place / "main.py").read_text() == "print('one')\n" and not (place / "new.txt").exists()

    undone = directory.undo()
    assert undone.raw["schema"] == "stasis.undo/1"
    assert (place / "main.py").read_text() == "print('two')\n"

    copy = directory.restore_to(tmp_path / "copy", first.snapshot_id)
    assert (copy.path / "main.py").read_text() == "print('one')\n"
    assert directory.log().items


def test_a_save_that_lost_a_database_says_so(directory: Directory, place: Path) -> None:
    import sqlite3

    with sqlite3.connect(place / "app.db") as database:
        database.execute("create table t (a)")
    database.close()
    before = directory.save()
    (place / "app.db").unlink()
    with pytest.raises(errors.IntegrityFailed) as caught:
        directory.save()
    assert caught.value.hint and "force=True" in caught.value.hint
    assert directory.restore(dry_run=True).snapshot_id == before.snapshot_id
    assert directory.save(force=True).is_latest


def test_checkpoints_are_made_compared_and_gone_back_to(directory: Directory, place: Path) -> None:
    # The first one makes the directory a workspace.
    first = directory.checkpoint("before")
    assert first.created and first.name == "before"
    (place / "main.py").write_text("print('two')\n")
    (place / "extra").mkdir()
    (place / "extra" / "a.txt").write_text("a")
    assert {one.path for one in directory.changes().items} >= {"main.py"}

    reverted = directory.revert("main.py", "before")
    assert reverted.undo and (place / "main.py").read_text() == "print('one')\n"
    rewound = directory.rewind("before")
    assert rewound.plan.deletes >= 1 and not (place / "extra").exists()
    directory.undo()
    assert (place / "extra" / "a.txt").read_text() == "a"
    assert [one.checkpoint for one in directory.checkpoints().items] == [first.checkpoint]
    with pytest.raises(errors.NotFound, match="nope"):
        directory.rewind("nope")


def test_a_tool_that_fails_leaves_the_directory_as_it_was(directory: Directory, place: Path) -> None:
    @directory.checkpointed
    def edit(text: str, *, fails: bool = False) -> int:
        """Edits."""
        (place / "main.py").write_text(text)
        (place / "made.txt").write_text("made")
        if fails:
            raise RuntimeError("the tool failed")
        return len(text)

    @directory.checkpointed
    def outer() -> int:
        (place / "outer.txt").write_text("outer")
        return edit("inner", fails=True)

    assert edit("good") == 4
    assert edit.__doc__ == "Edits."
    with pytest.raises(RuntimeError, match="the tool failed"):
        edit("bad", fails=True)
    assert (place / "main.py").read_text() == "good"
    (place / "made.txt").unlink()
    with pytest.raises(RuntimeError):
        outer()
    assert {one.name for one in place.iterdir()} == {"main.py"}
    assert (place / "main.py").read_text() == "good"


def test_a_fork_is_promoted_and_removed(directory: Directory, place: Path) -> None:
    one, two = directory.fork(2, name="try")
    assert {row.name for row in directory.forks()} == {"try-1", "try-2"}
    (two.path / "main.py").write_text("print('fork')\n")
    promoted = directory.promote(two)
    assert promoted.promoted and (place / "main.py").read_text() == "print('fork')\n"
    directory.remove_forks(one, two, discard=True)
    assert directory.forks() == [] and not one.path.exists()
    directory.undo()
    assert (place / "main.py").read_text() == "print('one')\n"
    with pytest.raises(errors.NotFound, match="no fork"):
        directory.promote(Directory(place))


def test_the_winner_of_a_race_is_promoted_and_the_rest_go(directory: Directory, place: Path) -> None:
    ideas = iter(["print(1)", "print(2)", "raise", "print(4)"])
    started: list[float] = []

    def task(fork: Directory) -> int:
        idea = next(ideas)
        started.append(time.monotonic())
        time.sleep(0.3)
        if idea == "raise":
            raise ValueError("no idea")
        (fork.path / "main.py").write_text(idea)
        return int(idea[6])

    def judge(attempts: Sequence[Attempt[int]]) -> Attempt[int] | None:
        assert len(attempts) == 4
        assert sum(isinstance(one.error, ValueError) for one in attempts) == 1
        return max((one for one in attempts if one.error is None), key=lambda one: one.result or 0)

    race = directory.race(4, task, judge)
    assert max(started) - min(started) < 0.3, "the tasks did not run at once"
    assert race.winner is not None and race.winner.result == 4 and race.kept == []
    assert (place / "main.py").read_text() == "print(4)"
    assert directory.forks() == []
    directory.undo()
    assert (place / "main.py").read_text() == "print('one')\n"


async def test_a_race_without_a_winner_changes_nothing_and_keeps_what_it_should(place: Path, host: Host) -> None:
    directory = AsyncDirectory(
        place, local=AsyncLocal(binary=host.binary, store=host.store, environment=host.environment)
    )

    async def task(fork: AsyncDirectory) -> None:
        (fork.path / "main.py").write_text("bad")

    async def judge(_: Sequence[AsyncAttempt[None]]) -> AsyncAttempt[None] | None:
        return None

    race = await directory.race(2, task, judge, keep=True)
    assert race.winner is None and race.promoted is None and len(race.kept) == 2
    assert (place / "main.py").read_text() == "print('one')\n"
    # Another one takes other names.
    again = await directory.race(2, task, judge)
    assert not {one.name for one in again.attempts} & set(race.kept)
    assert {row.name for row in await directory.forks()} == set(race.kept)


async def test_an_asynchronous_tool_that_fails_is_rewound(place: Path, host: Host) -> None:
    directory = AsyncDirectory(
        place, local=AsyncLocal(binary=host.binary, store=host.store, environment=host.environment)
    )

    @directory.checkpointed
    async def edit() -> None:
        (place / "main.py").write_text("bad")
        raise RuntimeError("the tool failed")

    with pytest.raises(RuntimeError):
        await edit()
    assert (place / "main.py").read_text() == "print('one')\n"
