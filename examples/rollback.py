"""A container agent that is rolled back after a bad action.

Before each action there is a snapshot of the agent's container; where a check of the container fails, it is replaced by the
snapshot from before the action. No model is asked: the agent is a list of commands, and the last one is bad.

    python rollback.py CONTAINER
"""

import subprocess
import sys

from stasis import Container

ACTIONS = [
    "echo 'one customer' > /customers",
    "echo 'another customer' >> /customers",
    "rm /customers",
]


def inside(name: str, command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["docker", "exec", name, "sh", "-c", command], capture_output=True, text=True)


def is_well(name: str) -> bool:
    """What must be true after each action, whatever the agent says of it."""
    return inside(name, "test -s /customers").returncode == 0


name = sys.argv[1]
container = Container(name)
for number, action in enumerate(ACTIONS, 1):
    before = container.save(trigger="before_action", description=f"before action {number}", context=action)
    inside(name, action)
    if not is_well(name):
        # What is replaced is saved first: what the agent did can be looked at later.
        restored = container.restore(before.snapshot_id, replace=True)
        print(
            f"action {number} was bad: rolled back; what it did is snapshot {(restored.safety_snapshot_id or '')[:8]}"
        )

customers = inside(name, "cat /customers").stdout
print(customers, end="")
assert customers == "one customer\nanother customer\n"
