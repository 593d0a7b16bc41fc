"""The checkpointer for LangGraph, in real graphs: the nodes write files, and going back brings them back."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any, TypedDict

import pytest

from conftest import Host
from stasis import Directory, errors

try:
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import Command, interrupt
except ImportError:
    pytest.skip("there is no `langgraph`: `check --integrations` installs it", allow_module_level=True)

from stasis.integrations.langgraph import DirectorySaver, FilesGone


class State(TypedDict):
    steps: list[str]


CONFIG: Any = {"configurable": {"thread_id": "1"}}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "plan.txt").write_text("")
    return made


@pytest.fixture
def directory(place: Path, host: Host) -> Directory:
    return Directory(place, local=host.local)


def graph(place: Path, saver: Any, steps: int = 3, **nodes: Any) -> Any:
    """A graph of nodes in a row: each writes its name behind those of the others, into the state and into a file."""

    def node(name: str) -> Any:
        def work(state: State) -> State:
            with (place / "plan.txt").open("a") as file:
                file.write(name)
            return {"steps": [*state["steps"], name]}

        return work

    builder = StateGraph(State)
    names = [chr(ord("a") + number) for number in range(steps)]
    for name in names:
        builder.add_node(name, nodes.get(name) or node(name))
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)


def run(compiled: Any, given: Any, config: Any = CONFIG) -> Any:
    return compiled.invoke(given, config, durability="sync")


def after(compiled: Any, name: str) -> Any:
    """The configuration of the newest checkpoint after a node."""
    history = list(compiled.get_state_history(CONFIG))
    return next(one.config for one in history if (one.values.get("steps") or [""])[-1] == name)


def text(place: Path) -> str:
    return (place / "plan.txt").read_text()


def test_going_back_in_the_graph_goes_back_on_disk(
    directory: Directory, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compiled = graph(place, DirectorySaver(InMemorySaver(), directory))
    assert run(compiled, {"steps": []})["steps"] == ["a", "b", "c"]
    (place / "notes.txt").write_text("made after the run")

    with caplog.at_level(logging.INFO, logger="stasis"):
        assert run(compiled, None, after(compiled, "a"))["steps"] == ["a", "b", "c"]
    assert text(place) == "abc", "the nodes after `a` began with other files than those of `a`"
    assert not (place / "notes.txt").exists()
    # What stood there before is not lost.
    (undo,) = re.findall(r"undo: (u-\d+)", caplog.text)
    directory.undo(undo)
    assert (place / "notes.txt").read_text() == "made after the run"


def test_each_checkpoint_names_the_files_that_its_next_node_begins_with(directory: Directory, place: Path) -> None:
    compiled = graph(place, DirectorySaver(InMemorySaver(), directory))
    run(compiled, {"steps": []})
    for number, snapshot in enumerate(reversed(list(compiled.get_state_history(CONFIG)))):
        copy = directory.restore_to(place.parent / f"copy-{number}", snapshot.metadata["stasis"]["name"])
        steps = snapshot.values.get("steps") or []
        assert (copy.path / "plan.txt").read_text() == "".join(steps), snapshot.metadata
        assert tuple(snapshot.next[:1]) != ("a",) or steps == []


def test_reading_changes_nothing_and_the_newest_goes_on_with_what_is_there(directory: Directory, place: Path) -> None:
    compiled = graph(place, DirectorySaver(InMemorySaver(), directory))
    run(compiled, {"steps": []})
    (place / "plan.txt").write_text("by hand")
    compiled.get_state(after(compiled, "a"))
    assert len(list(compiled.get_state_history(CONFIG))) == 5
    assert text(place) == "by hand"
    # Another turn of the conversation: what somebody did meanwhile stays.
    assert run(compiled, {"steps": ["x"]})["steps"] == ["x", "a", "b", "c"]
    assert text(place) == "by handabc"


def test_branches_of_the_timeline_have_files_of_their_own(directory: Directory, place: Path) -> None:
    compiled = graph(place, DirectorySaver(InMemorySaver(), directory))
    run(compiled, {"steps": []})
    main = compiled.get_state(CONFIG).config
    # An older checkpoint is changed: the directory stays what it is until somebody runs from there.
    changed = compiled.update_state(after(compiled, "a"), {"steps": ["a", "!"]})
    assert text(place) == "abc"
    assert run(compiled, None, changed)["steps"] == ["a", "!", "b", "c"]
    assert text(place) == "abc"
    (place / "plan.txt").write_text("a branch")
    branch = compiled.update_state(CONFIG, {"steps": ["branch"]}, as_node="c")
    # And back to the end of the first branch, which has nothing to run any more, and to the second one.
    saver = compiled.checkpointer
    saver.rewind(main)
    assert text(place) == "abc"
    saver.rewind(branch)
    assert text(place) == "a branch"


def test_an_update_of_the_newest_checkpoint_keeps_what_is_in_the_directory(directory: Directory, place: Path) -> None:
    compiled = graph(place, DirectorySaver(InMemorySaver(), directory))
    run(compiled, {"steps": []})
    (place / "plan.txt").write_text("by hand")
    changed = compiled.update_state(CONFIG, {"steps": ["b"]}, as_node="b")
    assert run(compiled, None, changed)["steps"] == ["b", "c"]
    assert text(place) == "by handc"


def test_an_interrupted_node_goes_on_with_the_files_that_it_left(directory: Directory, place: Path) -> None:
    def ask(state: State) -> State:
        answer = interrupt("go on?")
        with (place / "plan.txt").open("a") as file:
            file.write(answer)
        return {"steps": [*state["steps"], answer]}

    compiled = graph(place, DirectorySaver(InMemorySaver(), directory), b=ask)
    run(compiled, {"steps": []})
    asked = compiled.get_state(CONFIG).config
    (place / "plan.txt").write_text("[a]")
    assert run(compiled, Command(resume="yes"))["steps"] == ["a", "yes", "c"]
    assert text(place) == "[a]yesc"
    # The question is asked once more, with the files of that moment, and gets another answer.
    run(compiled, None, asked)
    assert text(place) == "a"
    assert run(compiled, Command(resume="no"))["steps"] == ["a", "no", "c"]
    assert text(place) == "anoc"


def test_what_a_failed_node_left_can_be_taken_back(directory: Directory, place: Path) -> None:
    fails = [True]

    def work(state: State) -> State:
        with (place / "plan.txt").open("a") as file:
            file.write("b")
        if fails.pop() if fails else False:
            raise RuntimeError("the node failed")
        return {"steps": [*state["steps"], "b"]}

    saver = DirectorySaver(InMemorySaver(), directory)
    compiled = graph(place, saver, b=work)
    with pytest.raises(RuntimeError, match="the node failed"):
        run(compiled, {"steps": []})
    assert text(place) == "ab"
    saver.rewind(CONFIG)
    assert text(place) == "a"
    assert run(compiled, None)["steps"] == ["a", "b", "c"]
    assert text(place) == "abc"


def test_files_that_are_gone_are_an_error_and_change_nothing(directory: Directory, place: Path) -> None:
    compiled = graph(place, DirectorySaver(InMemorySaver(), directory), steps=14)
    run(compiled, {"steps": []})
    with pytest.raises(FilesGone, match=r"cp-\d+ was deleted, or made room") as caught:
        run(compiled, None, after(compiled, "a"))
    assert isinstance(caught.value, errors.NotFound) and "auto_max" in str(caught.value.hint)
    assert text(place) == "abcdefghijklmn" and len(list(compiled.get_state_history(CONFIG))) == 16
    # One that is still there works, and nothing says that the directory is elsewhere.
    assert run(compiled, None, after(compiled, "m"))["steps"][-1] == "n"
    assert text(place) == "abcdefghijklmn"


def test_a_checkpoint_that_only_has_the_name_is_not_taken(directory: Directory, place: Path) -> None:
    saver = DirectorySaver(InMemorySaver(), directory)
    compiled = graph(place, saver)
    run(compiled, {"steps": []})
    first = after(compiled, "a")
    place.rename(place.with_name("old"))
    place.mkdir()
    (place / "plan.txt").write_text("another project")
    for number in range(3):
        (place / "more.txt").write_text(str(number))
        directory.checkpoint(automatic=True)
    for row in directory.checkpoints().items[3:]:
        directory._local.run("workspace", "delete", f"--workspace={place}", "--yes", "--", row.checkpoint)
    with pytest.raises(FilesGone):
        run(compiled, None, first)
    assert text(place) == "another project"


def test_checkpoints_of_another_saver_have_no_files(directory: Directory, place: Path) -> None:
    plain = InMemorySaver()
    compiled = graph(place, plain)
    run(compiled, {"steps": []})
    old = after(compiled, "a")
    compiled = graph(place, DirectorySaver(plain, directory))
    with pytest.raises(FilesGone, match="no files with it"):
        run(compiled, None, old)
    # The newest one goes on.
    assert run(compiled, {"steps": []})["steps"] == ["a", "b", "c"]


def test_a_run_that_does_not_wait_is_refused(directory: Directory, place: Path) -> None:
    compiled = graph(place, DirectorySaver(InMemorySaver(), directory))
    for given in ({}, {"durability": "async"}, {"durability": "exit"}):
        with pytest.raises(errors.InvalidRequest, match='durability="sync"'):
            compiled.invoke({"steps": []}, CONFIG, **given)
    assert text(place) == ""


def test_a_database_and_the_store_outlive_the_process(directory: Directory, place: Path, host: Host) -> None:
    def opened() -> Any:
        return SqliteSaver.from_conn_string(str(place.parent / "graph.db"))

    with opened() as saver:
        compiled = graph(place, DirectorySaver(saver, directory, in_store=True), steps=12)
        run(compiled, {"steps": []})
    with opened() as saver:
        again = Directory(place, local=host.local)
        compiled = graph(place, DirectorySaver(saver, again, in_store=True), steps=12)
        assert run(compiled, None, after(compiled, "a"))["steps"][-1] == "l"
        assert text(place) == "abcdefghijkl"
        changed = compiled.update_state(after(compiled, "b"), {"steps": ["b"]})
    with opened() as saver:
        compiled = graph(place, DirectorySaver(saver, Directory(place, local=host.local), in_store=True), steps=12)
        assert run(compiled, None, changed)["steps"][:2] == ["b", "c"]
        assert text(place) == "abcdefghijkl"


def test_a_graph_in_a_node_works_in_the_same_directory(directory: Directory, place: Path) -> None:
    inner = graph(place, None, steps=2)
    compiled = graph(place, DirectorySaver(InMemorySaver(), directory), steps=3, b=inner)
    assert run(compiled, {"steps": []})["steps"] == ["a", "a", "b", "c"]
    assert text(place) == "aabc"
    history = list(compiled.get_state_history(CONFIG))
    first = next(one.config for one in history if one.values.get("steps") == ["a"])
    assert run(compiled, None, first)["steps"] == ["a", "a", "b", "c"]
    assert text(place) == "aabc"


async def test_the_asynchronous_twin_does_the_same(directory: Directory, place: Path) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(place.parent / "graph.db")) as inner:
        saver = DirectorySaver(inner, directory)
        compiled = graph(place, saver)
        with pytest.raises(errors.InvalidRequest):
            await compiled.ainvoke({"steps": []}, CONFIG)
        assert (await compiled.ainvoke({"steps": []}, CONFIG, durability="sync"))["steps"] == ["a", "b", "c"]
        history = [one async for one in compiled.aget_state_history(CONFIG)]
        first = next(one.config for one in history if one.values.get("steps") == ["a"])
        (place / "plan.txt").write_text("by hand")
        assert (await compiled.ainvoke(None, first, durability="sync"))["steps"] == ["a", "b", "c"]
        assert text(place) == "abc"
        changed = await compiled.aupdate_state(first, {"steps": ["?"]})
        assert (await compiled.ainvoke(None, changed, durability="sync"))["steps"] == ["?", "b", "c"]
        assert text(place) == "abc"
        await saver.arewind(first)
        assert text(place) == "a"
        await saver.adelete_thread("1")
        assert [one async for one in saver.alist(CONFIG)] == []
