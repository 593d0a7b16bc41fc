"""A session that sleeps and wakes elsewhere: saved and ended when nobody uses it, brought back on another host.

Two hosts, which are two state directories here, share one store. No model is asked: the agent is a script that counts, and its
sandbox is a process on this host.
"""

import subprocess
import tempfile
from pathlib import Path

from stasis import Local, Session


def host(name: str, place: str) -> Local:
    """A host: all that it shares with the other one is the store."""
    state = str(Path(place, name))
    return Local(store=Path(place, "store"), environment={"HOME": state, "XDG_STATE_HOME": state})


def work(directory: Path) -> int:
    """What the agent does in a turn: it counts on from where it was."""
    file = directory / "outputs" / "count"
    count = int(file.read_text()) + 1 if file.exists() else 1
    file.write_text(str(count))
    return count


with tempfile.TemporaryDirectory() as place:
    Path(place, "store").mkdir()
    here, there = Path(place, "here"), Path(place, "there")
    (here / "outputs").mkdir(parents=True)
    sandbox = subprocess.Popen(["sleep", "600"], start_new_session=True)

    session = Session("acme/42", host="one", local=host("one", place))
    session.register(here, roots=["outputs"], driver="process", pid=sandbox.pid)
    print("one: counted to", work(here), "and", work(here))
    slept = session.sleep()
    assert slept.problem is None, slept.problem
    sandbox.wait(30)
    print("one: asleep, and the sandbox has ended")

    session = Session("acme/42", host="two", local=host("two", place))
    # On the other host nothing has to be started; usually these are the commands of its sandbox.
    session.wake(there, driver="command", start_command="true", health_command="true", terminate_command="true")
    count = work(there)
    print("two: awake, and counted to", count)
    assert count == 3
    assert session.sleep().problem is None
