"""Best of four: four agents, each in a fork of one project; a test judges, and the best fork becomes the project.

No model is asked: the agents are four small programs that act, and one of them breaks everything.
"""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from stasis import Attempt, Directory

TEST = """
import sys
from sort import sort
assert sort([3, 1, 2]) == [1, 2, 3]
assert sort([]) == []
print(len(open("sort.py").read()))
"""
IDEAS = [
    "def sort(numbers):\n    return numbers\n",
    "def sort(numbers):\n    left = list(numbers)\n    return [left.pop(left.index(min(left))) for _ in numbers]\n",
    "def sort(numbers):\n    return sorted(numbers)\n",
    None,
]


def agent(idea: str | None, fork: Directory) -> None:
    """Works in its own copy: whatever it does there, it does to nobody else."""
    if idea is None:
        (fork.path / "test.py").unlink()
        raise RuntimeError("the agent gave up")
    (fork.path / "sort.py").write_text(idea)


def size(attempt: Attempt[None]) -> int | None:
    """How long the solution is, if it passes the test."""
    test = subprocess.run([sys.executable, "test.py"], cwd=attempt.directory.path, capture_output=True, text=True)
    return int(test.stdout) if test.returncode == 0 else None


def judge(attempts: Sequence[Attempt[None]]) -> Attempt[None] | None:
    """Chooses the shortest one that passes; `None` would leave the project as it is."""
    sizes = {attempt.name: size(attempt) for attempt in attempts if attempt.error is None}
    print("sizes:", sizes)
    passed = [attempt for attempt in attempts if sizes.get(attempt.name) is not None]
    return min(passed, key=lambda attempt: sizes[attempt.name] or 0, default=None)


with tempfile.TemporaryDirectory() as place:
    project = Directory(Path(place, "project"))
    project.path.mkdir()
    (project.path / "test.py").write_text(TEST)
    (project.path / "sort.py").write_text("def sort(numbers):\n    raise NotImplementedError\n")

    ideas, lock = iter(IDEAS), threading.Lock()

    def task(fork: Directory) -> None:
        with lock:
            idea = next(ideas)
        agent(idea, fork)

    race = project.race(4, task, judge)
    assert race.winner is not None
    print("promoted:", race.winner.name)
    assert "sorted" in (project.path / "sort.py").read_text()
    assert not project.forks()

    project.undo()
    assert "NotImplementedError" in (project.path / "sort.py").read_text()
    print("undone: the project is what it was")
