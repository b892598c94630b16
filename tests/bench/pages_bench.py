#!/usr/bin/env python3
"""What open status pages cost acc-agent: its processor time as a part of one core, over a running job with heartbeats.

    pages_bench.py [--bin build/release/bin] [--pages 10] [--ranks 64] [--seconds 30]

A page is three connections that do what agent/daemon/page does while it is visible and a job is open: the stream of events, the log
of a rank, and each 2 s the job and what was added to its events. One JSON line: percent of a core of the daemon, with the pages and
without, and of the job's agent (`acc:agent`).
"""
import argparse, http.client, json, os, re, shutil, signal, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
LOOK_EVERY = 2.0  # s; liveEvery of app.js


def processor_time(pid):
    """Seconds of user and system time; 0: it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Page:
    """A visible status page with this job open."""

    def __init__(self, port, cookie, job, rank):
        self.port, self.headers, self.job, self.rank = port, {"Cookie": cookie}, job, rank
        self.looks, self.bytes, self.problems = 0, 0, []
        self.ends = threading.Event()
        for work in (self.look, lambda: self.follow("/v1/events?follow=1"), self.log):
            threading.Thread(target=self.run, args=(work,), daemon=True).start()

    def run(self, work):
        try:
            work()
        except Exception as wrong:  # its end is the daemon's, mostly
            if not self.ends.is_set():
                self.problems.append(repr(wrong))

    def get(self, line, target):
        line.request("GET", target, headers=self.headers)
        reply = line.getresponse()
        if reply.status != 200:
            raise RuntimeError(f"{target}: {reply.status} {reply.read()[:200]}")
        return reply

    def follow(self, target):
        reply = self.get(http.client.HTTPConnection("127.0.0.1", self.port), target)
        while not self.ends.is_set() and (piece := reply.read1(65536)):
            self.bytes += len(piece)

    def log(self):
        self.follow(f"/v1/jobs/{self.job}/logs?format=raw&stream=stdout&rank={self.rank}&from=0&follow=1")

    def look(self):
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        at = 0
        while not self.ends.is_set():
            begin = time.monotonic()
            self.bytes += len(self.get(line, f"/v1/jobs/{self.job}").read())
            added = self.get(line, f"/v1/jobs/{self.job}/logs?stream=events&format=raw&from={at}").read()
            at += len(added)
            self.bytes += len(added)
            self.looks += 1
            self.ends.wait(max(0, LOOK_EVERY - (time.monotonic() - begin)))


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = tempfile.mkdtemp(prefix="acc-pages-")
        os.chmod(self.folder, 0o755)
        self.socket = os.path.join(self.folder, "state/agent.sock")
        self.program = lambda name: os.path.join(os.path.abspath(options.bin), name)
        self.port = 29_000 + os.getpid() % 600
        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.daemon = subprocess.Popen([self.program("acc-agent"), "--state-dir", self.folder + "/state", "--launch", self.program("acc-launch"),
                                            "--slots", str(options.ranks), "--gpus", "none", "--http", f"127.0.0.1:{self.port}"],
                                           stdout=log, stderr=log, cwd="/")
        self.until(lambda: os.path.exists(self.socket), "the daemon")

    def until(self, true, what, seconds=60):
        end = time.monotonic() + seconds
        while not (value := true()):
            if time.monotonic() > end:
                raise SystemExit(f"pages_bench: no {what} within {seconds} s")
            time.sleep(0.05)
        return value

    def ctl(self, *words):
        return subprocess.run([self.program("acc-ctl"), "--socket", self.socket, *words], capture_output=True, text=True, check=True, cwd="/").stdout

    def cookie(self):
        link = self.ctl("token", "--browser").strip()
        line = http.client.HTTPConnection("127.0.0.1", self.port)
        line.request("GET", link[link.index("/?token="):])
        return re.match(r"[^;]+", line.getresponse().getheader("Set-Cookie"))[0]

    def shares(self, seconds, pids):
        """Percent of a core of each."""
        before, begin = [processor_time(pid) for pid in pids], time.monotonic()
        time.sleep(seconds)
        span = time.monotonic() - begin
        return [round(100 * (processor_time(pid) - was) / span, 2) for pid, was in zip(pids, before)]

    def run(self):
        options = self.options
        worker = self.program("heartbeat_worker")
        # A step each half second without collectives: no fault of its own, as there is no rank -1.
        job = self.ctl("submit", "--detach", "--slots", str(options.ranks), "--", "--num_processes", str(options.ranks), "--no_python",
                       worker, "1000000", "500", f"slow={options.ranks}@1").strip()
        status = lambda: json.loads(self.ctl("status", "--json", job)).get("live") or {}
        self.until(lambda: sum(bool(one["step"]) for one in status().get("workers", [])) == options.ranks, "heartbeats of all ranks")
        guardian = json.loads(self.ctl("status", "--json", job))["pid"]
        agent = int(subprocess.run(["pgrep", "-P", str(guardian)], capture_output=True, text=True).stdout.split()[0])
        pids = [self.daemon.pid, agent]
        without = self.shares(options.seconds / 3, pids)
        cookie = self.cookie()
        pages = [Page(self.port, cookie, job, i % options.ranks) for i in range(options.pages)]
        self.until(lambda: all(page.looks for page in pages), "a look of each page")
        looks = sum(page.looks for page in pages)
        with_pages = self.shares(options.seconds, pids)
        result = {"pages": options.pages, "ranks": options.ranks, "daemon_percent": with_pages[0], "daemon_percent_without": without[0],
                  "agent_percent": with_pages[1], "agent_percent_without": without[1], "looks": sum(page.looks for page in pages) - looks,
                  "load": os.getloadavg()[0], "problems": [text for page in pages for text in page.problems]}
        for page in pages:
            page.ends.set()
        self.ctl("stop", "--grace", "1", job)
        return result

    def close(self):
        self.daemon.send_signal(signal.SIGTERM)
        self.daemon.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--bin", default=os.path.join(HERE, "../../build/release/bin"))
    for name, value in (("pages", 10), ("ranks", 64), ("seconds", 30)):
        words.add_argument(f"--{name}", type=int, default=value)
    bench = Bench(words.parse_args())
    try:
        result = bench.run()
    finally:
        bench.close()
    print(json.dumps(result))
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
