"""A graph whose checkpoints have files: going back in the graph goes back on disk.

No model is asked: the nodes are functions that act. The second one writes a poor draft, and is tried again from before it.
"""

import tempfile
from pathlib import Path
from typing import TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from stasis import Directory
from stasis.integrations.langgraph import DirectorySaver


class State(TypedDict):
    style: str
    done: list[str]


with tempfile.TemporaryDirectory() as place:
    directory = Directory(Path(place, "paper"))
    directory.path.mkdir()
    paper = directory.path / "paper.txt"

    def outline(state: State) -> State:
        paper.write_text("# Outline\n")
        return {**state, "done": [*state["done"], "outline"]}

    def draft(state: State) -> State:
        with paper.open("a") as file:
            file.write(f"a {state['style']} draft\n")
        return {**state, "done": [*state["done"], "draft"]}

    builder = StateGraph(State)
    builder.add_node("outline", outline)
    builder.add_node("draft", draft)
    builder.add_edge(START, "outline")
    builder.add_edge("outline", "draft")
    builder.add_edge("draft", END)
    graph = builder.compile(checkpointer=DirectorySaver(InMemorySaver(), directory))

    thread = {"configurable": {"thread_id": "paper"}}
    graph.invoke({"style": "poor", "done": []}, thread, durability="sync")
    print(paper.read_text())

    before = next(one for one in graph.get_state_history(thread) if one.next == ("draft",))
    again = graph.update_state(before.config, {"style": "good"})
    graph.invoke(None, again, durability="sync")
    print(paper.read_text())
    assert paper.read_text() == "# Outline\na good draft\n"

    directory.undo()
    assert "poor" in paper.read_text(), "what was there before is not lost"
