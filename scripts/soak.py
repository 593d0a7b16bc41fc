"""The rounds of scripts/soak, which see."""

import http.server
import json
import math
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

BINARY, ROUNDS = os.environ["STASIS_SOAK_BINARY"], int(os.environ["STASIS_SOAK_ROUNDS"])
SUBJECT = "soak/alice"
FLAGS = (
    "--headless=new --disable-gpu --disable-quic --no-first-run --no-sandbox --disable-background-networking "
    "--disable-component-update --disable-sync --password-store=basic --remote-debugging-port=0"
).split()
OPEN = """
  const db = await new Promise((done, fail) => {
    const open = indexedDB.open('db', 1);
    open.onupgradeneeded = () => open.result.createObjectStore('s');
    open.onsuccess = () => done(open.result); open.onerror = () => fail(open.error);
  });"""
WRITE = """
  const value = location.search.slice(1);
  localStorage.setItem('ls', value);
  document.cookie = 'cookie=' + value + '; max-age=86400; SameSite=Lax';
  await new Promise((done, fail) => {
    const t = db.transaction('s', 'readwrite');
    t.objectStore('s').put(value, 'idb'); t.oncomplete = done; t.onerror = () => fail(t.error);
  });
  const found = {written: value};"""
READ = """
  const idb = await new Promise((done, fail) => {
    const get = db.transaction('s').objectStore('s').get('idb');
    get.onsuccess = () => done(get.result); get.onerror = () => fail(get.error);
  });
  const cookie = document.cookie.split('; ').find(one => one.startsWith('cookie='));
  const found = {ls: localStorage.getItem('ls'), idb, cookie: cookie && cookie.slice(7)};"""
PAGE = """<!doctype html><script>(async () => {%s%s
  await fetch('/report', {method: 'POST', body: JSON.stringify(found)});
})().catch(e => fetch('/report', {method: 'POST', body: JSON.stringify({error: String(e)})}))</script>"""
reports = queue.Queue()


class Site(http.server.BaseHTTPRequestHandler):
    """One origin for both hosts."""

    def do_GET(self):
        wanted = self.path.split("?")[0]
        page = {"/write": PAGE % (OPEN, WRITE), "/read": PAGE % (OPEN, READ)}.get(wanted)
        self.answer(page or "", 200 if page else 404)

    def do_POST(self):
        reports.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.answer("", 200)

    def answer(self, body, code):
        self.send_response(code)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


def environment(home):
    kept = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "STASIS_STORE", "PATH"))}
    return kept | {"HOME": str(home)}


def stasis(home, *arguments):
    """Runs a command to its end; its answer."""
    done = subprocess.run([BINARY, "--json", *arguments], env=environment(home), capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f"stasis {' '.join(arguments)}: exit {done.returncode}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1] if done.stdout.count("\n{") else done.stdout)


def write(home, site, value):
    """A browser on the profile, which writes and is ended; what was saved of it, and how long the end took."""
    command = [BINARY, "--json", "profile", "run", SUBJECT, "--dir", str(home / "p"), "--", "chromium", *FLAGS]
    command += ["--user-data-dir={dir}", f"{site}/write?{value}"]
    run = subprocess.Popen(command, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        report = reports.get(timeout=60)
    finally:
        began = time.monotonic()
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=120)
    took = time.monotonic() - began
    if report != {"written": value} or run.returncode != 0:
        raise RuntimeError(f"the browser said {report}; exit {run.returncode}: {out[-2000:]}{err[-2000:]}")
    return json.loads(out.splitlines()[-1]), took


def read(home, site):
    """What a browser finds in the profile that was loaded."""
    browser = subprocess.Popen(
        ["chromium", *FLAGS, f"--user-data-dir={home / 'p'}", f"{site}/read"],
        env=environment(home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        return reports.get(timeout=60)
    finally:
        browser.terminate()
        try:
            browser.wait(timeout=20)
        except subprocess.TimeoutExpired:
            browser.kill()
            browser.wait()


def round_trip(scratch, site, value):
    here, there = scratch / "here", scratch / f"there-{value}"
    there.mkdir()
    saved, ended = write(here, site, value)
    sha = saved["save"]["sha256"]
    shutil.rmtree(here / "p")
    began = time.monotonic()
    loaded = stasis(there, "profile", "load", SUBJECT, "--dir", str(there / "p"), "--browser", "chromium")
    load = time.monotonic() - began
    shown = stasis(there, "profile", "show", saved["subject"])
    found = read(there, site)
    expected = {"ls": value, "idb": value, "cookie": value}
    snapshot = shown["lineages"][0]["snapshot"]
    is_active = snapshot["sha256_prefix"] == sha[:12] and "active" in snapshot["marks"]
    if found != expected or loaded["sha256"] != sha or not is_active:
        raise RuntimeError(f"wrote {expected}, read {found}; saved {sha}, loaded {loaded['sha256']}")
    shutil.rmtree(there)
    seconds = (saved["save"]["capture_ms"] / 1000, ended, load, ended + load)
    return seconds, len(json.dumps(snapshot["manifest"])), saved["save"]["archive_bytes"]


def row(name, values):
    ordered = sorted(values)
    p99 = ordered[math.ceil(len(ordered) * 0.99) - 1]
    mean = sum(ordered) / len(ordered)
    return f"| {name} | {mean:.2f} s | {p99:.2f} s | {ordered[0]:.2f} s | {ordered[-1]:.2f} s |"


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site = f"http://localhost:{server.server_port}"
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="stasis-soak."))
    (scratch / "here").mkdir()
    done, failures = [], []
    try:
        for number in range(1, ROUNDS + 1):
            try:
                done.append(round_trip(scratch, site, f"kept-{number}"))
            except (RuntimeError, KeyError, ValueError, queue.Empty, subprocess.TimeoutExpired) as error:
                failures.append(f"round {number}: {type(error).__name__} {error}")
                print(failures[-1], file=sys.stderr)
                shutil.rmtree(scratch / "here" / "p", ignore_errors=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if done:
        print("| what | mean | p99 | least | most |\n|---|---|---|---|---|")
        names = ["capture", "from the end of the browser to the pointer", "load on a host that has nothing", "round trip"]
        for at, name in enumerate(names):
            print(row(name, [seconds[at] for seconds, _, _ in done]))
        manifests, archives = sorted(one[1] for one in done), sorted(one[2] for one in done)
        print(f"\nManifests of {manifests[0]} to {manifests[-1]} bytes, archives of {archives[0]} to {archives[-1]} bytes.")
    print(f"{len(done)} of {ROUNDS} rounds; {len(failures)} failed.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
