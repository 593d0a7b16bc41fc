"""The measurements of scripts/load, which see."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

BINARY, SUBJECTS = os.environ["STASIS_LOAD_BINARY"], int(os.environ["STASIS_LOAD_SUBJECTS"])
TENANT, FIRST = "load", "p00000@131"
AT_ONCE, SECONDS = 14, 10
local, running = threading.local(), []


def environment(home, store):
    kept = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "PATH"))}
    return kept | {"HOME": str(home), "STASIS_STORE": store}


def stasis(home, store, *arguments):
    done = subprocess.run([BINARY, *arguments], env=environment(home, store), capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"stasis {' '.join(arguments)}: exit {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


class Server:
    """A service of its own, which remembers nothing yet."""

    def __init__(self, home, store):
        command = [BINARY, "--json", "serve", "--listen", "127.0.0.1:0", "--no-jobs", "--rate", "1000000"]
        self.process = subprocess.Popen(command, env=environment(home, store), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        running.append(self.process)
        said = ""
        while not said.endswith("\n}\n"):
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(f"the service ended: {said}")
            said += line
        self.listen = json.loads(said)["listen"]

    def ask(self, token, method, path, body=None):
        kept = getattr(local, "kept", None)
        if kept is None or kept[0] != self.listen:
            kept = local.kept = (self.listen, http.client.HTTPConnection(self.listen, timeout=120))
        for again in (False, True):
            try:
                kept[1].request(method, path, body and json.dumps(body), {"Authorization": f"Bearer {token}", "Host": self.listen})
                answer = kept[1].getresponse()
                return answer.status, json.loads(answer.read())
            except (http.client.HTTPException, ConnectionError):
                # A connection takes requests for a minute.
                kept[1].close()
                if again:
                    raise

    def peak(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) // 1024

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)


def first_profile(home, store):
    profile = home / "profile"
    (profile / "Default").mkdir(parents=True)
    (profile / "Last Version").write_text("131.0.0.0")
    with sqlite3.connect(profile / "Default" / "Cookies") as cookies:
        cookies.execute("create table cookies (name text)")
    stasis(home, store, "profile", "save", f"{TENANT}/{FIRST}", "--dir", str(profile))


def fork(server, token, number):
    path = f"/v1/subjects/profile/{FIRST}/fork"
    status, said = server.ask(token, "POST", path, {"target": f"p{number:05}", "snapshot": "latest"})
    if status != 202:
        raise RuntimeError(f"{status}: {said}")
    while True:
        status, row = server.ask(token, "GET", f"/v1/operations/{said['operation_id']}")
        if row.get("state") == "done":
            return
        if row.get("state") != "running":
            raise RuntimeError(f"{status}: {row}")
        time.sleep(0.02)


def grow(home, token, store):
    server = Server(home, store)
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for done in pool.map(lambda number: fork(server, token, number), range(1, SUBJECTS)):
            assert done is None
    took = time.monotonic() - began
    server.end()
    print(f"{SUBJECTS - 1} forks, {AT_ONCE} at once, in {took:.0f} s", file=sys.stderr)


def upload(directory, store):
    """A store in a directory has the objects of a bucket as files, under the same names."""
    _, bucket, query = re.fullmatch(r"(s3)://([^?]+)\?(.*)", store).groups()
    said = dict(one.split("=", 1) for one in query.split("&"))
    remote = {"PROVIDER": "Other", "ENDPOINT": said["endpoint"], "REGION": said["region"], "NO_CHECK_BUCKET": "true"}
    remote |= {"ACCESS_KEY_ID": os.environ["AWS_ACCESS_KEY_ID"], "SECRET_ACCESS_KEY": os.environ["AWS_SECRET_ACCESS_KEY"]}
    command = ["target/parts/venv/bin/rclone", "copy", str(directory), f":s3:{bucket}", "--config", "/dev/null", "--transfers", "32"]
    command += ["--exclude", ".stasis/**", "--no-traverse", "--no-check-dest"]
    named = {f"RCLONE_S3_{name}": value for name, value in remote.items()}
    began = time.monotonic()
    subprocess.run(command, env=os.environ | named, check=True, timeout=3600)
    print(f"copied to the bucket in {time.monotonic() - began:.0f} s", file=sys.stderr)


def milliseconds(text):
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()
    return float(number) * {"us": 0.001, "ms": 1, "s": 1000, "m": 60000}[unit]


def wrk(server, token, path, connections):
    command = ["wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s", "--latency", "--timeout", "60s"]
    command += ["-H", f"Authorization: Bearer {token}", f"http://{server.listen}{path}"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS + 120, check=True).stdout
    if "Non-2xx" in said or "Socket errors" in said:
        raise RuntimeError(said)
    p50, p99 = (milliseconds(re.search(rf"\n\s+{name}%\s+(\S+)", said)[1]) for name in ("50", "99"))
    return p50, p99, float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1])


def measured(server, token):
    name = f"p{SUBJECTS // 2:05}@131"
    rows = [
        ("a page of 100 subjects", "/v1/subjects?limit=100"),
        ("a page of 1,000 subjects", "/v1/subjects?limit=1000"),
        ("one subject", f"/v1/subjects/profile/{name}"),
        ("its snapshots", f"/v1/subjects/profile/{name}/snapshots"),
        ("a profile's snapshots (the seed's route)", f"/v1/profile-snapshots/{TENANT}/{name.split('@')[0]}"),
        ("`/healthz`", "/healthz"),
    ]
    print("| what | first, cold | p50, alone | p99, alone | p50, 8 at once | p99, 8 at once | requests a second, 8 at once |")
    print("|---|---|---|---|---|---|---|")
    for what, path in rows:
        began = time.monotonic()
        status, _ = server.ask(token, "GET", path)
        if status != 200:
            raise RuntimeError(f"{path}: {status}")
        first = 1000 * (time.monotonic() - began)
        alone, many = wrk(server, token, path, 1), wrk(server, token, path, 8)
        print(f"| {what} | {first:.0f} ms | {alone[0]:.1f} ms | {alone[1]:.1f} ms | {many[0]:.1f} ms | {many[1]:.1f} ms | {many[2]:.0f} |", flush=True)


def pages(server, token):
    """All pages of the list: each subject once."""
    seen, cursor, began = [], None, time.monotonic()
    while True:
        more = f"&cursor={cursor}" if cursor else ""
        status, page = server.ask(token, "GET", f"/v1/subjects?limit=1000{more}")
        if status != 200:
            raise RuntimeError(f"{status}: {page}")
        seen += [one["id"] for one in page["items"]]
        cursor = page.get("next_cursor")
        if not cursor:
            break
    if len(seen) != SUBJECTS or len(set(seen)) != SUBJECTS:
        raise RuntimeError(f"{len(seen)} rows, {len(set(seen))} subjects of {SUBJECTS}")
    return time.monotonic() - began


def main():
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="stasis-load."))
    try:
        home = scratch / "home"
        home.mkdir()
        directory, bucket = scratch / "store", os.environ["STASIS_STORE"]
        first_profile(home, f"file://{directory}")
        token = stasis(home, f"file://{directory}", "token", "create", "--tenant", TENANT, "--scope", "admin").split()[-1]
        grow(home, token, f"file://{directory}")
        upload(directory, bucket)
        server = Server(home, bucket)
        measured(server, token)
        print(f"\nAll {SUBJECTS} subjects in pages of 1,000: {pages(server, token):.1f} s warm. The service had {server.peak()} MiB at most.")
        server.end()
        server = Server(home, bucket)
        print(f"A service that had just started: {pages(server, token):.1f} s.")
        server.end()
    finally:
        for process in running:
            process.kill()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
