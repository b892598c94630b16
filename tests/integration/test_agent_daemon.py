"""acc-agent as its users see it: curl and raw sockets at the door, real jobs behind it."""
import contextlib, json, os, pwd, re, select, shutil, signal, socket, subprocess, tempfile, threading, time, unittest

from harness import (ACC, BIN, PATIENCE, PROGRAMS, SANITIZED, SLACK, context_switches, free_port, is_root, main, own_token, processes_with, read,
                     state_of, until, write)
from stuck_folder import StuckFolder

AGENT, PRELOADED = (shutil.copy(os.path.join(BIN, name), PROGRAMS.name) for name in ("acc-agent", "preloaded.so"))
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
ENDED = ("succeeded", "failed", "stopped")


def plain(text):
    """Without acc-launch's prefix of each line."""
    return re.sub(r"^\[default\d+\]:", "", text, flags=re.M)


class Reply:
    def __init__(self, head, body):
        self.status = int(head.split()[1]) if head else 0
        self.head, self.body = head, body

    @property
    def json(self):
        return json.loads(self.body)


class Line:
    """A connection without a library in between."""
    def __init__(self, path, timeout=20):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout * PATIENCE)
        self.held = b""
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise

    def __del__(self):
        self.socket.close()

    def close(self):
        self.socket.close()

    def send(self, text):
        self.socket.sendall(text if isinstance(text, bytes) else text.encode())

    def read_to(self, mark):
        """Up to and with `mark`; None at the end of the connection."""
        while mark not in self.held:
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            self.held += more
        text, _, self.held = self.held.partition(mark)
        return text + mark

    def rest(self):
        while True:
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError:
                more = b""
            if not more:
                held, self.held = self.held, b""
                return held
            self.held += more


class Events:
    """Server-sent events, over HTTP/1.0 so that no chunks are in between. Ends with the connection."""
    def __init__(self, path, target, last_id=None):
        self.line = Line(path)
        self.last_id = last_id
        self.line.send(f"GET {target} HTTP/1.0\r\n" + (f"Last-Event-ID: {last_id}\r\n" if last_id else "") + "\r\n")
        head = self.line.read_to(b"\r\n\r\n")
        assert head and b" 200 " in head.split(b"\r\n")[0], head

    def __iter__(self):
        """(name, data): the data as the JSON that it is."""
        while (text := self.line.read_to(b"\n\n")) is not None:
            fields = dict(row.split(": ", 1) for row in text.decode().split("\n") if row and not row.startswith(":"))
            if "data" in fields:
                self.last_id = fields.get("id", self.last_id)
                yield fields.get("event", "message"), json.loads(fields["data"])


class Daemon:
    def __init__(self, folder, *flags, user=None, env=None, wrap=()):
        self.folder, self.state = folder, os.path.join(folder, "state")
        self.path = os.path.join(self.state, "agent.sock")
        self.log_path = os.path.join(folder, f"log-{time.monotonic_ns()}")
        environment = {k: v for k, v in os.environ.items() if k not in ("NOTIFY_SOCKET", "XDG_RUNTIME_DIR")}
        environment.update(env or {})
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([*wrap, AGENT, "--state-dir", self.state, "--launch", ACC, *flags], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, env=environment, cwd="/", user=user, group=user,
                                            extra_groups=[] if user else None)
        self.pid = self.process.pid

    def wait_ready(self):
        def answers():
            if self.process.poll() is not None:
                raise AssertionError(f"acc-agent ended with {self.process.returncode}: {self.log}")
            with contextlib.suppress(OSError):
                return self.ask("GET", "/healthz").status == 200
        until(answers, "an answer of the daemon")
        return self

    @property
    def log(self):
        return read(self.log_path)

    def ask(self, method, target, body=None):
        line = Line(self.path)
        text = json.dumps(body).encode() if body is not None else b""
        head = f"{method} {target} HTTP/1.1\r\nHost: acc\r\nConnection: close\r\n"
        if body is not None or method == "POST":
            head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n"
        line.send(head.encode() + b"\r\n" + text)
        answer = line.rest()
        line.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return Reply(head.decode(), body.decode())

    def job(self, id):
        return self.ask("GET", f"/v1/jobs/{id}").json

    def wait_ended(self, id, deadline=20.0):
        return until(lambda: (job := self.job(id))["state"] in ENDED and job, f"the end of {id}", deadline)

    def status_of(self, key):
        return int(re.search(rf"^{key}:\s+(\d+)", read(f"/proc/{self.pid}/status"), re.M)[1])

    def stop(self, signo=signal.SIGTERM):
        self.process.send_signal(signo)
        return self.process.wait(10 * PATIENCE)


class DaemonTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="acc-agent-")
        os.chmod(self.folder, 0o755)
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.daemons = []
        self.addCleanup(self.end_all)

    def end_all(self):
        """Whatever a test left: its jobs by a daemon that can stop them, then the daemons."""
        last = self.daemons[-1] if self.daemons else None
        with contextlib.suppress(OSError, AssertionError, ValueError):
            if last and last.process.poll() is None:
                for job in last.ask("GET", "/v1/jobs").json["jobs"]:
                    if job["state"] not in ENDED:
                        last.ask("POST", f"/v1/jobs/{job['id']}/stop", {"grace_s": 0})
                        last.wait_ended(job["id"])
        for daemon in self.daemons:
            if daemon.process.poll() is None:
                daemon.process.kill()
                daemon.process.wait()

    def started(self, *flags, **options):
        daemon = Daemon(self.folder, *flags, **options)
        self.daemons.append(daemon)
        return daemon

    def daemon(self, *flags, **options):
        return self.started("--slots", "4", "--gpus", "none", *flags, **options).wait_ready()

    def submit(self, daemon, shell, **more):
        words = ["--num_processes", "1", "--no_python", "sh", "-c", shell]
        reply = daemon.ask("POST", "/v1/jobs", {"name": "t", "words": words, "working_directory": "/", **more})
        self.assertEqual(reply.status, 201, reply.body)
        return reply.json["id"]

    def curl(self, daemon, *words, user=None):
        done = subprocess.run(["curl", "-sS", "-m", "60", "--unix-socket", daemon.path, *words], capture_output=True, text=True,
                              user=user, group=user, extra_groups=[] if user else None, cwd="/")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def read_through(self, daemon, target, events=None):
        """({"stdout": text, "stderr": text}, data of `end`)"""
        texts = {"stdout": "", "stderr": ""}
        for name, data in events or Events(daemon.path, target):
            if name == "end":
                return texts, data
            texts[name] += data
        return texts, None


class Jobs(DaemonTest):
    def test_a_job_that_names_no_slots_takes_one_for_each_of_its_workers(self):
        daemon = self.daemon()

        def submit(workers, **more):
            words = ["--num_processes", str(workers), "--no_python", "sleep", "600"]
            return daemon.ask("POST", "/v1/jobs", {"words": words, "working_directory": "/", **more})
        two, one = submit(2).json["id"], submit(2, slots=1).json["id"]
        self.assertEqual([daemon.ask("GET", f"/v1/jobs/{id}").json["slots"] for id in (two, one)], [2, 1])
        full = submit(2)
        self.assertEqual(full.status, 429, full.body)
        self.assertIn("it needs 2 slots, free: 1 slot", full.json["error"])
        self.assertIn("it needs 5 slots, and this node has 4 slots in all", submit(5).json["error"])

    def test_a_job_is_submitted_followed_and_shown_with_its_end(self):
        daemon = self.daemon()
        words = ["--num_processes", "1", "--no_python", "sh", "-c", "echo one; echo bad >&2; printf two; exit 7"]
        answer = json.loads(self.curl(daemon, "--json", json.dumps({"name": "t", "words": words, "working_directory": "/tmp"}),
                                      "http://acc/v1/jobs"))
        id = answer["id"]
        self.assertRegex(id, r"^t-[a-z0-9]{6}$")
        stream = self.curl(daemon, "-N", f"http://acc/v1/jobs/{id}/logs?follow=1")
        self.assertRegex(stream, r'(?s)event: end\nid: \d+,\d+\ndata: \{.*"exit_code":7.*\}\n\n$')
        texts, end = self.read_through(daemon, f"/v1/jobs/{id}/logs?follow=1")
        self.assertEqual(end["state"], "failed")
        self.assertIn("one\n", texts["stdout"])
        self.assertIn("two", texts["stdout"])
        self.assertIn("bad\n", texts["stderr"])
        self.assertEqual(self.curl(daemon, f"http://acc/v1/jobs/{id}/logs"), texts["stdout"])
        self.assertEqual(self.curl(daemon, f"http://acc/v1/jobs/{id}/logs?stream=stderr"), texts["stderr"])
        job = daemon.job(id)
        self.assertEqual((job["state"], job["exit_code"], job["report"]["exit_code"]), ("failed", 7, 7))
        self.assertEqual(daemon.ask("DELETE", f"/v1/jobs/{id}").status, 204)
        self.assertEqual(daemon.ask("GET", f"/v1/jobs/{id}").status, 404)

    def test_metrics_count_jobs_and_show_the_memory_of_running_ones(self):
        daemon = self.daemon()
        id = self.submit(daemon, "echo up; exec sleep 600")
        line = f'acc_daemon_job_workers{{job="{id}",state="running"}} 1'
        # A worker that was just forked has no memory of its own yet.
        memory = re.compile(rf'acc_daemon_job_resident_memory_bytes{{job="{id}"}} [1-9]')
        text = until(lambda: (t := daemon.ask("GET", "/metrics").body) and line in t and memory.search(t) and t, "the running worker", 20)
        self.assertIn('acc_daemon_jobs{state="running"} 1\n', text)
        self.assertIn("acc_daemon_jobs_unanswered 0\n", text)
        promtool = os.environ.get("ACC_PROMTOOL") or shutil.which("promtool")
        if promtool:
            checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
            self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))
        else:
            print("promtool (Debian's prometheus) is missing: the format was not checked by it")
        daemon.ask("POST", f"/v1/jobs/{id}/stop", {"grace_s": 0})

    def test_a_running_job_is_stopped_and_a_wrong_call_is_a_conflict(self):
        daemon = self.daemon()
        id = self.submit(daemon, "echo up; exec sleep 600")
        texts = ""
        for name, data in Events(daemon.path, f"/v1/jobs/{id}/logs?follow=1"):
            texts += data
            if "up\n" in texts:
                break
        self.assertEqual(daemon.ask("DELETE", f"/v1/jobs/{id}").status, 409)
        self.assertEqual(daemon.ask("POST", f"/v1/jobs/{id}/stop", {"grace_s": 1}).status, 202)
        self.assertEqual(daemon.wait_ended(id)["state"], "stopped")

    def test_a_rank_of_its_own_is_followed(self):
        daemon = self.daemon()
        words = ["--num_processes", "2", "--no_python", "sh", "-c", "echo rank $RANK"]
        id = daemon.ask("POST", "/v1/jobs", {"words": words, "working_directory": "/", "slots": 2}).json["id"]
        texts, _ = self.read_through(daemon, f"/v1/jobs/{id}/logs?follow=1&rank=1&stream=stdout")
        self.assertEqual(texts["stdout"], "rank 1\n")

    def test_a_reader_of_a_rank_that_was_cut_off_misses_no_attempt(self):
        daemon = self.daemon()
        go = os.path.join(daemon.folder, "go")
        shell = f"""n=$(cat {go}.n 2>/dev/null || echo 0); echo $((n + 1)) > {go}.n; echo "attempt $n begins"
                    while [ ! -e {go} ]; do sleep 0.05; done; echo "attempt $n, which is longer than the first line, ends"; exit 1"""
        words = ["--num_processes", "1", "--max_restarts", "2", "--no_python", "sh", "-c", shell]
        id = daemon.ask("POST", "/v1/jobs", {"words": words, "working_directory": "/"}).json["id"]
        log = f"/v1/jobs/{id}/logs?follow=1&rank=0&stream=stdout"
        events = Events(daemon.path, log)
        self.assertEqual(next(iter(events)), ("stdout", "attempt 0 begins\n"))
        events.line.close()
        open(go, "w").close()
        self.assertEqual(daemon.wait_ended(id)["state"], "failed")
        self.assertEqual(daemon.ask("POST", f"/v1/jobs/{id}/restart").status, 202)
        until(lambda: read(go + ".n") == "6\n", "the last attempt of the second run")
        texts, end = self.read_through(daemon, log, Events(daemon.path, log, events.last_id))
        lines = [line for n in range(6) for line in (f"attempt {n} begins", f"attempt {n}, which is longer than the first line, ends")]
        self.assertEqual((texts["stdout"].splitlines(), end["state"]), (lines[1:], "failed"))

    def test_events_go_on_where_the_reader_was_cut_off(self):
        daemon = self.daemon()
        first = self.submit(daemon, "true")
        daemon.wait_ended(first)
        seen = []
        events = Events(daemon.path, "/v1/events?follow=1")
        for _, event in events:
            seen.append(event)
            break
        events.line.close()
        second = self.submit(daemon, "true")
        daemon.wait_ended(second)
        again = Events(daemon.path, "/v1/events?follow=1", events.last_id)
        for _, event in again:
            seen.append(event)
            if event["job"] == second and event["kind"] == "ended":
                break
        self.assertEqual(seen, [e for e in daemon.ask("GET", "/v1/events").json["events"] if e["id"] <= seen[-1]["id"]])
        self.assertEqual([e["kind"] for e in seen if e["job"] == first][0], "submitted")


class Users(DaemonTest):
    @unittest.skipUnless(is_root(), "needs root")
    def test_a_user_reaches_its_own_jobs_only_and_runs_as_itself(self):
        daemon = self.daemon()
        one, other = pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("games").pw_uid
        words = ["--num_processes", "1", "--no_python", "sh", "-c", "id -u; exec sleep 600"]
        body = json.dumps({"name": "t", "words": words, "working_directory": "/"})
        id = json.loads(self.curl(daemon, "--json", body, "http://acc/v1/jobs", user=one))["id"]
        until(lambda: f"{one}\n" in self.curl(daemon, f"http://acc/v1/jobs/{id}/logs", user=one), "the worker's uid")
        for words in (["/v1/jobs/" + id], ["/v1/jobs/" + id + "/logs"], ["/v1/jobs/" + id + "/logs?follow=1"],
                      ["-X", "POST", "/v1/jobs/" + id + "/stop"], ["--json", '{"signal": "USR1"}', "/v1/jobs/" + id + "/signal"],
                      ["-X", "POST", "/v1/jobs/" + id + "/restart"], ["-X", "DELETE", "/v1/jobs/" + id]):
            answer = json.loads(self.curl(daemon, *words[:-1], "http://acc" + words[-1], user=other))
            self.assertEqual(answer["code"], "not_found", words)
        self.assertEqual(json.loads(self.curl(daemon, "http://acc/v1/jobs", user=other)), {"jobs": []})
        self.assertEqual(json.loads(self.curl(daemon, "http://acc/v1/events", user=other)), {"events": []})
        self.assertEqual(json.loads(self.curl(daemon, "--json", '{"reason": "x"}', "http://acc/v1/node/drain", user=one))["code"],
                         "not_permitted")
        as_root = json.dumps({"words": ["x"], "working_directory": "/", "user": "root"})
        self.assertEqual(json.loads(self.curl(daemon, "--json", as_root, "http://acc/v1/jobs", user=one))["code"], "not_permitted")
        self.assertEqual(daemon.job(id)["state"], "running")

    @unittest.skipUnless(is_root(), "needs root")
    def test_a_node_that_an_operators_job_found_unfit_is_drained_and_a_users_job_drains_nothing(self):
        daemon = self.daemon()
        words = ["--num_processes", "1", "--health_check", "echo ib0 has no link; false", "--no_python", "true"]
        job = {"name": "t", "words": words, "working_directory": "/"}
        user = pwd.getpwnam("nobody").pw_uid
        of_user = json.loads(self.curl(daemon, "--json", json.dumps(job), "http://acc/v1/jobs", user=user))["id"]
        self.assertEqual(daemon.wait_ended(of_user)["exit_code"], 74)
        until(lambda: "node_unfit_for_job" in daemon.log, "the line in the log")
        self.assertEqual(daemon.ask("GET", "/v1/node").json["drained"], "")
        id = daemon.ask("POST", "/v1/jobs", job).json["id"]
        self.assertEqual(daemon.wait_ended(id)["exit_code"], 74)
        until(lambda: daemon.ask("GET", "/v1/node").json["drained"] ==
              f"job {id}: this node is unfit: --health_check ended with 1: ib0 has no link", "the drained node")
        self.assertEqual(daemon.ask("POST", "/v1/jobs", job).status, 503)
        self.assertEqual(daemon.ask("POST", "/v1/node/undrain").status, 202)
        self.assertEqual(daemon.ask("GET", "/v1/node").json["drained"], "")
        # Also one that is started again and again, as all of jobs.d are.
        id = daemon.ask("POST", "/v1/jobs", {**job, "restart": {"policy": "always"}}).json["id"]
        until(lambda: daemon.ask("GET", "/v1/node").json["drained"].startswith(f"job {id}: this node is unfit"), "the drained node")
        self.assertEqual(daemon.ask("POST", f"/v1/jobs/{id}/stop", {}).status, 202)

    def lines_of(self, daemon, user, count, request="GET /healthz HTTP/1.1\r\nHost: acc\r\n\r\n"):
        lines = []
        os.seteuid(user)
        try:
            for _ in range(count):
                lines.append(Line(daemon.path))
        finally:
            os.seteuid(0)
        self.addCleanup(lambda: [line.close() for line in lines])
        for line in lines:
            with contextlib.suppress(OSError):  # turned away already
                line.send(request)
        return lines

    @unittest.skipUnless(is_root(), "needs root")
    def test_a_daemon_in_a_user_namespace_of_one_user_took_jobs_and_started_none(self):
        """unshare -Ur: root of a namespace in which groups can't be set."""
        user = pwd.getpwnam("nobody").pw_uid
        if subprocess.run(["unshare", "-Ur", "true"], user=user, group=user, extra_groups=[], capture_output=True).returncode != 0:
            self.skipTest("no user namespaces here")
        os.chown(self.folder, user, user)
        daemon = self.started("--slots", "4", "--gpus", "none", user=user, wrap=["unshare", "-Ur"])
        until(lambda: os.path.exists(daemon.path), "the daemon's socket")
        words = ["--num_processes", "1", "--no_python", "sh", "-c", "id -u; exit 3"]
        body = json.dumps({"name": "t", "words": words, "working_directory": "/"})
        id = json.loads(self.curl(daemon, "--json", body, "http://acc/v1/jobs", user=user))["id"]
        job = until(lambda: (job := json.loads(self.curl(daemon, f"http://acc/v1/jobs/{id}", user=user)))["state"] in ENDED and job, "its end")
        self.assertEqual((job["exit_code"], job["reason"]), (3, ""), job)
        self.assertEqual(plain(self.curl(daemon, f"http://acc/v1/jobs/{id}/logs", user=user)), "0\n")
        daemon.stop()

    @unittest.skipUnless(is_root() and shutil.which("prlimit"), "needs root")
    def test_one_users_log_followers_took_all_descriptors_and_root_could_not_even_ask(self):
        secret = os.path.join(self.folder, "secret")
        write(secret, os.urandom(32).hex() + "\n")
        os.chmod(secret, 0o600)
        daemon = self.daemon("--listen", f"127.0.0.1:{free_port()}", "--secret-file", secret, wrap=["prlimit", "--nofile=1024:1024"])
        user = pwd.getpwnam("nobody").pw_uid
        body = json.dumps({"name": "t", "words": ["--num_processes", "1", "--no_python", "sleep", "600"], "working_directory": "/"})
        id = json.loads(self.curl(daemon, "--json", body, "http://acc/v1/jobs", user=user))["id"]
        until(lambda: daemon.job(id)["state"] == "running", "the user's job")
        lines = self.lines_of(daemon, user, 400, f"GET /v1/jobs/{id}/logs?follow=1 HTTP/1.1\r\nHost: acc\r\n\r\n")
        served = self.served(lines)
        self.assertGreater(served, 32)
        self.assertLess(served, 400)
        self.assertLess(len(os.listdir(f"/proc/{daemon.pid}/fd")), 900)
        self.assertEqual(daemon.ask("GET", "/v1/jobs").status, 200)  # root
        own = self.submit(daemon, "exit 3")
        self.assertEqual(daemon.wait_ended(own)["exit_code"], 3)
        self.assertRegex(daemon.log, r"connections_lowered descriptors=1024 .*LimitNOFILE=\d+")

    def served(self, lines):
        return sum((line.read_to(b"\r\n\r\n") or b"").startswith(b"HTTP/1.1 200") for line in lines)

    @unittest.skipUnless(is_root(), "needs root")
    def test_two_users_took_all_connections_and_a_third_could_not_even_ask(self):
        daemon = self.daemon()
        one, other, third = (pwd.getpwnam(name).pw_uid for name in ("nobody", "games", "man"))
        streams = self.lines_of(daemon, one, 256, "GET /v1/events?follow=1 HTTP/1.1\r\nHost: acc\r\n\r\n")
        self.assertEqual(self.served(streams), 256)
        halves = self.lines_of(daemon, other, 224, "GET /healthz HT")
        self.assertEqual(self.served(self.lines_of(daemon, third, 150)), 150)
        self.assertIn("connection_ended_for_another_users", daemon.log)
        poll = select.poll()
        for line in halves + streams:
            poll.register(line.socket, 0)
        hung_up = {fd for fd, event in poll.poll(0) if event & select.POLLHUP}
        said = [line.rest().decode() for line in halves if line.socket.fileno() in hung_up]
        ended = [text for text in said if "this one was ended for another user's" in text]
        self.assertGreater(len(ended), 40)  # of 330 places the two have as many each
        for text in said:  # on a busy machine one that sends half a request is also too slow
            self.assertRegex(text, "^HTTP/1.1 (503|408) ")
        self.assertEqual(json.loads(self.curl(daemon, "http://acc/v1/jobs", user=third)), {"jobs": []})
        self.assertLess(len(os.listdir(f"/proc/{daemon.pid}/fd")), 550)

    @unittest.skipUnless(is_root(), "needs root")
    def test_a_user_with_subordinate_uids_took_all_connections(self):
        daemon = self.daemon()
        known = {entry.pw_uid for entry in pwd.getpwall()}
        uids = [uid for uid in range(100_000, 200_000) if uid not in known][:8]
        served = [self.served(self.lines_of(daemon, uid, 60)) for uid in uids]
        self.assertEqual(sum(served), 256, served)
        self.assertEqual(self.served(self.lines_of(daemon, pwd.getpwnam("nobody").pw_uid, 100)), 100)

    @unittest.skipUnless(is_root(), "needs root")
    def test_a_users_daemon_serves_that_user_alone(self):
        user = pwd.getpwnam("nobody").pw_uid
        os.chown(self.folder, user, user)
        daemon = self.daemon(user=user, env={"HOME": self.folder})
        self.assertEqual(os.stat(daemon.path).st_mode & 0o777, 0o600)
        id = self.submit(daemon, "id -u")
        texts, end = self.read_through(daemon, f"/v1/jobs/{id}/logs?follow=1")
        self.assertEqual((plain(texts["stdout"]), end["exit_code"]), (f"{user}\n", 0))


@unittest.skipIf(SANITIZED, "a sanitized program wants its own library first")
class Trials(DaemonTest):
    """acc-launch --print_plan, which the daemon runs for submissions that only check or name no slots."""

    def setUp(self):
        super().setUp()
        self.token = own_token(f"trial{time.monotonic_ns()}")
        self.addCleanup(self.kill_left)

    def kill_left(self):
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def left(self):
        return processes_with(self.token)

    def body(self, what, **more):
        return {"name": "t", "words": ["--num_processes", "1", "--no_python", "true", self.token], "working_directory": "/",
                "env": {"LD_PRELOAD": PRELOADED, "PRELOADED": what}, **more}

    def begin(self, daemon, what, **more):
        """Sends it; the caller reads the answer, or hangs up."""
        text = json.dumps(self.body(what, **more))
        line = Line(daemon.path, 60)
        line.send("POST /v1/jobs HTTP/1.1\r\nHost: acc\r\nConnection: close\r\nContent-Type: application/json\r\n"
                  f"Content-Length: {len(text)}\r\n\r\n{text}")
        return line

    def test_a_process_that_a_check_forked_away_stayed_for_ever(self):
        daemon = self.daemon()
        self.assertEqual(daemon.ask("POST", "/v1/jobs", self.body("leave", check=True)).json["ok"], True)
        until(lambda: not self.left(), "the end of what the check left")
        job = daemon.ask("POST", "/v1/jobs", self.body("leave", wait=True)).json["id"]  # without slots
        daemon.wait_ended(job)
        until(lambda: not self.left(), "the end of what the submission left")

    def test_two_thousand_checks_of_a_user_ran_at_once_and_went_on_without_their_callers(self):
        daemon = self.daemon()
        lines = [self.begin(daemon, "hang", check=True) for _ in range(12)]
        until(lambda: len(self.left()) >= 4, "the first checks")
        for _ in range(20):
            self.assertEqual(daemon.ask("GET", "/healthz").status, 200)
            self.assertLessEqual(len(self.left()), 4)
        began = time.monotonic()
        for line in lines:
            line.close()
        until(lambda: not self.left(), "the end of checks whose callers have gone")
        self.assertLess(time.monotonic() - began, 10 * SLACK)  # by themselves they would hang for 20 s
        for _ in range(100):
            self.begin(daemon, "hang", check=True).close()
        until(lambda: not self.left(), "the end of those that hung up at once")
        body = self.body("none", check=True)
        self.assertEqual(daemon.ask("POST", "/v1/jobs", body).json["ok"], True)
        self.assertEqual(daemon.ask("GET", "/v1/jobs").json, {"jobs": []})

    def test_a_submission_that_names_no_slots_is_not_taken_when_its_caller_has_gone_meanwhile(self):
        daemon = self.daemon()
        line = self.begin(daemon, "hang")
        until(self.left, "the trial")
        line.close()
        until(lambda: not self.left(), "its end")
        self.assertEqual(daemon.ask("GET", "/v1/jobs").json, {"jobs": []})

    def test_checks_beyond_the_bound_are_refused_and_can_be_tried_again(self):
        daemon = self.daemon()
        lines = [self.begin(daemon, "hang", check=True) for _ in range(4)]
        until(lambda: len(self.left()) == 4, "four checks")
        reply = daemon.ask("POST", "/v1/jobs", self.body("none", check=True))
        self.assertEqual((reply.status, reply.json["code"]), (429, "exhausted"), reply.body)
        self.assertIn("try again later", reply.json["error"])
        for line in lines:
            line.close()
        until(lambda: daemon.ask("POST", "/v1/jobs", self.body("none", check=True)).status == 200, "an answer")

    def test_a_long_command_line_was_refused_with_its_plan_as_the_reason_or_ran_with_1_slot(self):
        daemon = self.daemon()
        for what, words in (("names", ["/data/set/part-%06d.parquet" % i for i in range(4000)]), ("a long word", ["y" * 120000] * 2),
                            ("escapes", ["\x02" * 4000] * 40)):  # six bytes each in a body of 1 MiB
            for _ in range(3):
                body = {**self.body("none"), "words": ["--num_processes", "4", "--no_python", "true", self.token, *words]}
                reply = daemon.ask("POST", "/v1/jobs", {**body, "check": True})
                self.assertEqual(reply.status, 200, (what, reply.body[:300]))
                reply = daemon.ask("POST", "/v1/jobs", {**body, "wait": True})  # without slots
                self.assertEqual(reply.status, 201, (what, reply.body[:300]))
                self.assertEqual(daemon.job(reply.json["id"])["slots"], 4, what)
                self.assertEqual(daemon.wait_ended(reply.json["id"])["exit_code"], 0, what)

    def test_a_job_whose_trial_failed_ran_with_1_slot(self):
        daemon = self.daemon()
        for what, status, why in (("flood", 400, "what acc-launch says of the job: more than 4194304 bytes"), ("die", 500, "SIGKILL"), ("cut", 400, "plan")):
            for more in ({"check": True}, {}):
                reply = daemon.ask("POST", "/v1/jobs", self.body(what, **more))
                self.assertEqual(reply.status, status, (what, more, reply.body[:300]))
                self.assertIn(why, reply.json["error"])
                self.assertLess(len(reply.body), 1000)
        self.assertEqual(daemon.ask("GET", "/v1/jobs").json, {"jobs": []})

    def test_a_job_whose_check_takes_too_long_could_not_be_submitted_and_no_word_said_how(self):
        reply = self.daemon().ask("POST", "/v1/jobs", self.body("hang"))
        self.assertEqual(reply.status, 503, reply.body)
        self.assertIn("within 20 s: submit it again, or name its slots (acc-ctl submit --slots N)", reply.json["error"])

    def test_trials_of_a_killed_daemon_are_ended_by_the_next_one(self):
        daemon = self.daemon()
        line = self.begin(daemon, "hang", check=True)
        until(self.left, "the trial")
        groups = [read(f"/proc/{pid}/cgroup") for pid in self.left()]
        daemon.process.kill()
        daemon.process.wait()
        line.close()
        if not all("/jobs/" in group for group in groups):
            self.skipTest("no control groups here: what a killed daemon left isn't found")
        self.assertTrue(self.left())
        self.daemon()
        until(lambda: not self.left(), "the end of the trial")


@unittest.skipUnless(is_root() and os.path.exists("/dev/fuse"), "needs a file system of our own")
class StuckTrials(DaemonTest):
    """The server of files, or the disk, on which the script lies doesn't answer: then the kernel lets no signal end the process that asks."""

    def setUp(self):
        super().setUp()
        self.stuck = StuckFolder(os.path.join(self.folder, "stuck"))
        self.addCleanup(self.stuck.give_up)

    def test_a_daemon_ended_by_an_illegal_instruction_when_a_check_could_not_be_ended(self):
        daemon = self.daemon()
        text = json.dumps({"name": "t", "words": ["--num_processes", "1", self.stuck.place + "/train.py"], "working_directory": "/", "check": True})
        line = Line(daemon.path, 60)
        self.addCleanup(line.close)
        line.send("POST /v1/jobs HTTP/1.1\r\nHost: acc\r\nConnection: close\r\nContent-Type: application/json\r\n"
                  f"Content-Length: {len(text)}\r\n\r\n{text}")
        self.assertTrue(self.stuck.asked.wait(20 * PATIENCE), "nobody looked for the script")
        until(lambda: "trial_left" in daemon.log, "the daemon's giving up of the check", 20 * PATIENCE)
        self.assertIn(b" 503 ", line.rest().split(b"\r\n")[0])
        self.assertEqual(daemon.ask("GET", "/healthz").status, 200)
        left = int(re.search(r"trial_left .*pid=(\d+)", daemon.log)[1])
        self.assertTrue(os.path.exists(f"/proc/{left}"))
        self.stuck.give_up()
        until(lambda: not os.path.exists(f"/proc/{left}"), "the end of the check, once its file system is gone")
        self.wait_check(daemon)
        self.assertEqual(daemon.stop(), 0)

    def wait_check(self, daemon):
        body = {"name": "t", "words": ["--num_processes", "1", "--no_python", "true"], "working_directory": "/", "check": True}
        self.assertEqual(daemon.ask("POST", "/v1/jobs", body).json["ok"], True)


class Clients(DaemonTest):
    def test_two_hundred_idle_connections_cost_little_and_disturb_nobody(self):
        daemon = self.daemon()
        before = daemon.status_of("VmRSS")
        lines = [Line(daemon.path) for _ in range(200)]
        for line in lines:
            line.send("GET /healthz HTTP/1.1\r\n\r\n")
        for line in lines:
            self.assertIn(b" 200 ", line.read_to(b"ok\n"))
        self.assertEqual(daemon.ask("GET", "/v1/node").status, 200)
        if not SANITIZED:
            self.assertLess(daemon.status_of("VmRSS") - before, 8 * 1024)
        for line in lines:
            line.close()
        until(lambda: len(os.listdir(f"/proc/{daemon.pid}/fd")) < 50, "the closing of all")

    def test_a_job_ran_as_often_as_it_had_been_submitted_in_vain_to_a_daemon_that_stood_still(self):
        daemon = self.daemon()
        body = json.dumps({"name": "once", "words": ["--num_processes", "1", "--no_python", "true"], "working_directory": self.folder})
        request = f"POST /v1/jobs HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        os.kill(daemon.pid, signal.SIGSTOP)
        until(lambda: state_of(daemon.pid) == "T", "the stop")
        given_up = [Line(daemon.path) for _ in range(3)]
        waits = Line(daemon.path)
        for line in [*given_up, waits]:
            line.send(request)
        for line in given_up:
            line.close()
        os.kill(daemon.pid, signal.SIGCONT)
        self.assertIn(b" 201 ", waits.read_to(b"\r\n"))
        self.assertEqual([job["name"] for job in daemon.ask("GET", "/v1/jobs").json["jobs"]], ["once"])

    def test_slow_clients_are_cut_off_and_others_are_served(self):
        daemon = self.daemon()
        lines = [Line(daemon.path, 40) for _ in range(50)]
        for line in lines:
            line.send("GET /healthz HT")
        began = time.monotonic()
        while time.monotonic() - began < 5:
            for line in lines:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # we stood still, and it is cut off already
                    line.send("T")  # byte by byte, as slowly as it may
            self.assertEqual(daemon.ask("GET", "/healthz").status, 200)
            time.sleep(0.5)
        for line in lines:
            self.assertRegex(line.rest(), b"^HTTP/1.1 408 ")
        self.assertLess(time.monotonic() - began, 30 * SLACK)

    def test_a_body_of_a_hundred_megabytes_is_refused_unread(self):
        daemon = self.daemon()
        big = os.path.join(self.folder, "big")
        with open(big, "wb") as file:
            file.truncate(100 << 20)
        before = daemon.status_of("VmRSS")
        for more in ([], ["-H", "Expect:"], ["-H", "Transfer-Encoding: chunked"]):
            answer = self.curl(daemon, "-H", "Content-Type: application/json", *more, "--data-binary", f"@{big}", "http://acc/v1/jobs")
            self.assertEqual(json.loads(answer)["code"], "too_large")
        if not SANITIZED:
            self.assertLess(daemon.status_of("VmRSS") - before, 8 * 1024)

    def test_a_reader_that_stops_costs_little_and_gets_all_in_the_end(self):
        daemon = self.daemon()
        id = self.submit(daemon, "seq 1 1000000")
        stopped = Line(daemon.path, 60)
        stopped.send(f"GET /v1/jobs/{id}/logs?follow=1 HTTP/1.0\r\n\r\n")
        daemon.wait_ended(id, 60)
        before = daemon.status_of("VmRSS")
        texts, end = self.read_through(daemon, f"/v1/jobs/{id}/logs?follow=1")
        expected = "".join(f"{i}\n" for i in range(1, 1000001))
        self.assertTrue(plain(texts["stdout"]) == expected, "lines were lost or torn")
        self.assertEqual(end["state"], "succeeded")
        if not SANITIZED:
            self.assertLess(daemon.status_of("VmRSS") - before, 4 * 1024)
        self.assertIn(b"event: end", stopped.rest())

    @unittest.skipIf(SANITIZED, "a sanitizer has memory and threads of its own")
    def test_one_users_questions_about_ten_jobs_made_the_daemon_deaf_for_half_a_minute(self):
        """Each question to an agent took 10 to 100 ms of the loop, asleep in the kernel."""
        daemon = self.daemon("--slots", "10")
        ids = [self.submit(daemon, "sleep 600") for _ in range(10)]
        for id in ids:
            until(lambda: "live" in daemon.job(id), "an answer of its agent")
        lines = [Line(daemon.path) for _ in range(200)]
        for line in lines:
            self.addCleanup(line.close)
            line.send("GET /metrics HTTP/1.1\r\nHost: acc\r\nConnection: close\r\n\r\n")
        began = time.monotonic()
        self.assertEqual(daemon.ask("GET", "/healthz").status, 200)
        self.assertLess(time.monotonic() - began, 10 * SLACK)
        codes = [int(line.rest().split()[1]) for line in lines]
        self.assertIn(200, codes)
        self.assertLessEqual(set(codes), {200, 503})

    @unittest.skipIf(SANITIZED, "a sanitizer has memory and threads of its own")
    def test_without_work_it_sleeps_in_eight_megabytes(self):
        daemon = self.daemon()
        id = self.submit(daemon, "true")
        daemon.wait_ended(id)

        def quiet():
            """No wake-up for 10 s; what the job left to do may fall into the first ones."""
            before = context_switches(daemon.pid)
            time.sleep(10)
            return context_switches(daemon.pid) == before
        self.assertTrue(quiet() or quiet(), "wake-ups of an idle daemon")
        self.assertLessEqual(daemon.status_of("VmRSS"), 8 * 1024)


class UsersFiles(DaemonTest):
    """What a job's folder holds is its user's, and one loop serves all."""

    def begin(self, shell="sleep 600"):
        daemon = self.daemon()
        id = self.submit(daemon, shell)
        until(lambda: daemon.job(id)["state"] == "running", "the job")
        return daemon, id, os.path.join(daemon.state, "jobs", id, "user")

    def test_events_that_claim_a_later_begin_froze_the_daemon(self):
        daemon, id, folder = self.begin()
        path = os.path.join(folder, "events.jsonl")
        until(lambda: os.path.exists(path) and os.path.getsize(path), "the job's events")  # its agent has opened it: it won't make it anew
        os.remove(path)
        reader = Line(daemon.path)
        self.addCleanup(reader.close)
        reader.send(f"GET /v1/jobs/{id}/logs?stream=events&format=raw&follow=1 HTTP/1.0\r\n\r\n")
        self.assertIn(b" 200 ", reader.read_to(b"\r\n\r\n"))
        with open(path + ".new", "w") as file:
            file.write('{"v":1,"event":"file_continued","begins_at":9}\n')
        os.rename(path + ".new", path)
        self.assertIn(b"file_continued", reader.read_to(b"\n"))
        self.assertEqual(daemon.ask("GET", "/healthz").status, 200)

    def test_output_that_ends_within_a_character_kept_a_core_busy(self):
        daemon, id, _ = self.begin("printf 'begun\\n\\360'; sleep 600")
        reader = Line(daemon.path)
        self.addCleanup(reader.close)
        reader.send(f"GET /v1/jobs/{id}/logs?stream=stdout&follow=1 HTTP/1.0\r\n\r\n")
        reader.read_to(b"begun")
        def seconds():
            words = read(f"/proc/{daemon.pid}/stat").rsplit(")", 1)[1].split()
            return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        began, before = time.monotonic(), seconds()
        until(lambda: time.monotonic() - began > 1.5, "time in which nothing happens")
        self.assertLess(seconds() - before, 0.3 * SLACK)

    def test_unread_pages_of_a_job_with_a_long_command_line_were_not_counted(self):
        """Two long words of characters that take two bytes in JSON: no page fits into a socket's buffer. One that does is no
        longer the daemon's."""
        daemon = self.daemon()
        words = ["--num_processes", "1", "--no_python", "sh", "-c", "sleep 600", *['"' * 120_000] * 2]
        submitted = daemon.ask("POST", "/v1/jobs", {"words": words, "working_directory": "/"})
        self.assertEqual(submitted.status, 201, submitted.body)
        id = submitted.json["id"]
        until(lambda: daemon.job(id)["state"] == "running", "the job")
        lines = [Line(daemon.path) for _ in range(240)]
        for line in lines:
            self.addCleanup(line.close)
            line.send(f"GET /v1/jobs/{id} HTTP/1.1\r\nHost: acc\r\nConnection: close\r\n\r\n")
        answers = [line.read_to(b"\r\n").split()[1] for line in lines]
        self.assertEqual(set(answers), {b"200", b"503"})
        self.assertLess(answers.count(b"200") * 480_000, 20 << 20)

    def test_an_agent_that_never_comes_cost_an_instance_of_inotify_for_each_file(self):
        daemon, id, folder = self.begin()
        until(lambda: os.path.exists(os.path.join(folder, "control.sock")), "the agent's socket")
        os.rename(os.path.join(folder, "control.sock"), os.path.join(folder, "away"))
        line = Line(daemon.path)
        self.addCleanup(line.close)
        began = time.monotonic()
        line.send(f"POST /v1/jobs/{id}/stacks HTTP/1.1\r\nHost: acc\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        most = 0
        for number in range(100):
            with open(os.path.join(folder, f"file{number}"), "w"):
                pass
            most = max(most, self.watches(daemon))
        self.assertLessEqual(most, 4)  # one of the API, one of the request, and its copy while it waits
        os.rename(os.path.join(folder, "away"), os.path.join(folder, "control.sock"))
        waited = time.monotonic() - began
        answer = line.read_to(b"\r\n")
        if waited < 3:  # as long as a request waits for an agent: a machine that stood still may have let that pass
            self.assertIn(b" 200 ", answer)
        until(lambda: daemon.ask("POST", f"/v1/jobs/{id}/stacks").status == 200, "the agent's answer")

    def test_stacks_of_a_daemons_job_were_headed_by_an_id_that_acc_ctl_does_not_know(self):
        daemon, id, _ = self.begin()
        answer = until(lambda: (answer := daemon.ask("POST", f"/v1/jobs/{id}/stacks")).status == 200 and answer, "the agent's answer")
        self.assertTrue(answer.json["text"].startswith(f"job {id}, attempt 0, "), answer.json["text"])

    def watches(self, daemon):
        links = []
        for fd in os.listdir(f"/proc/{daemon.pid}/fd"):
            with contextlib.suppress(OSError):
                links.append(os.readlink(f"/proc/{daemon.pid}/fd/{fd}"))
        return len([link for link in links if "inotify" in link])

    def test_requests_that_wait_for_an_agent_took_all_of_roots_inotify_instances(self):
        daemon, id, folder = self.begin()
        until(lambda: os.path.exists(os.path.join(folder, "control.sock")), "the agent's socket")
        os.rename(os.path.join(folder, "control.sock"), os.path.join(folder, "away"))
        asking = [Line(daemon.path) for _ in range(60)]
        for line in asking:
            self.addCleanup(line.close)
            line.send(f"POST /v1/jobs/{id}/stacks HTTP/1.1\r\nHost: acc\r\nContent-Length: 0\r\n\r\n")
        until(lambda: self.watches(daemon) >= 16, "requests that wait")
        self.assertEqual(daemon.ask("GET", "/healthz").status, 200)  # behind all of them
        self.assertLess(self.watches(daemon), 40)


class Life(DaemonTest):
    def follow_over(self, daemon, signo):
        """Follows a job while the daemon is ended by `signo` and started again, twice."""
        id = self.submit(daemon, "i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i; echo err $i >&2; sleep 0.01; done; exit 5")
        texts, last, end = {"stdout": "", "stderr": ""}, None, None
        for cut in (60, 160, None):
            events = Events(daemon.path, f"/v1/jobs/{id}/logs?follow=1", last)
            for name, data in events:
                last = events.last_id
                if name == "end":
                    end = data
                    break
                texts[name] += data
                if cut and f"line {cut}\n" in texts["stdout"]:
                    daemon.stop(signo)
                    daemon = self.daemon()
                    break
        for stream, word in (("stdout", "line"), ("stderr", "err")):
            lines = [row for row in plain(texts[stream]).splitlines() if row.startswith(word + " ")]
            self.assertEqual(lines, [f"{word} {i}" for i in range(1, 401)])
        self.assertEqual((end["state"], end["exit_code"]), ("failed", 5))
        self.assertEqual(daemon.job(id)["starts"], 1)

    def test_a_reader_goes_on_behind_a_daemon_that_was_stopped(self):
        self.follow_over(self.daemon(), signal.SIGTERM)

    def test_a_reader_goes_on_behind_a_daemon_that_was_killed(self):
        self.follow_over(self.daemon(), signal.SIGKILL)

    def test_sigterm_ends_the_daemon_with_zero_and_leaves_its_job(self):
        daemon = self.daemon()
        id = self.submit(daemon, "echo up; exec sleep 600")
        until(lambda: "up\n" in daemon.ask("GET", f"/v1/jobs/{id}/logs").body, "the worker")
        pid = daemon.job(id)["pid"]
        idle = Line(daemon.path)
        self.assertEqual(daemon.stop(), 0)
        self.assertEqual(idle.rest(), b"")
        self.assertFalse(os.path.exists(daemon.path))
        self.assertNotIn(state_of(pid), (None, "Z"))
        self.assertEqual(self.daemon().job(id)["pid"], pid)

    def test_a_second_daemon_on_the_same_folder_is_refused_by_pid(self):
        first = self.daemon()
        second = self.started()
        self.assertEqual(second.process.wait(20 * PATIENCE), 1)
        self.assertIn(f"another acc-agent (pid {first.pid}) serves the state folder '{first.state}'", second.log)
        # Nor does one that is refused for its socket start what is in jobs.d, beside the first one's.
        files = self.folder + "/jobs.d"
        os.mkdir(files, 0o755)
        write(files + "/one.yaml", f"compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nnum_processes: 1\nno_python: true\nscript: {shutil.which('true')}\n", 0o644)
        third = self.started("--state-dir", self.folder + "/other", "--socket", first.path, "--jobs-dir", files)
        self.assertEqual(third.process.wait(20 * PATIENCE), 1)
        self.assertIn("another process serves it already", third.log)
        self.assertEqual(os.listdir(self.folder + "/other/jobs"), [])
        self.assertEqual(first.ask("GET", "/healthz").status, 200)

    def test_a_daemon_on_another_node_took_the_jobs_of_a_shared_home_for_dead_and_started_them_twice(self):
        first = self.daemon()
        id = self.submit(first, "echo up; exec sleep 600", restart={"policy": "always"})
        until(lambda: "up\n" in first.ask("GET", f"/v1/jobs/{id}/logs").body, "the worker")
        pid = first.job(id)["pid"]
        self.assertEqual(first.stop(), 0)
        note = os.path.join(first.state, "machine")
        own = read(note)
        write(note, json.dumps({"machine_id": "", "host": "node-a"}))  # as if that had been there
        second = self.started("--slots", "4")
        self.assertEqual(second.process.wait(20 * PATIENCE), 1)
        self.assertIn(f"the state folder '{first.state}' is that of another machine, node-a, which may run {id}:", second.log)
        self.assertNotIn(state_of(pid), (None, "Z"))
        write(note, own)
        self.assertEqual(self.daemon().job(id)["pid"], pid)

    def test_a_job_of_jobs_d_shows_what_it_executes_and_one_whose_folder_was_removed_by_hand_can_be_removed(self):
        jobs = os.path.join(self.folder, "jobs.d")
        os.mkdir(jobs)
        write(os.path.join(jobs, "embed.yaml"), "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nnum_processes: 1\nno_python: true\n"
                                                "script: /bin/sleep\nscript_args: ['600']\n")
        os.chmod(os.path.join(jobs, "embed.yaml"), 0o644)
        daemon = self.daemon("--jobs-dir", jobs)
        job, = until(lambda: daemon.ask("GET", "/v1/jobs").json["jobs"], "the job")
        self.assertEqual(job["program"], "/bin/sleep")
        daemon.ask("POST", f"/v1/jobs/{job['id']}/stop", {"grace_s": 0})
        daemon.wait_ended(job["id"])
        shutil.rmtree(os.path.join(daemon.state, "jobs", job["id"]))
        gone = daemon.ask("DELETE", f"/v1/jobs/{job['id']}")
        self.assertLess(gone.status, 300, gone.body)
        self.assertEqual(daemon.ask("GET", "/v1/jobs").json["jobs"], [])

    def test_a_submission_at_the_start_took_the_slots_of_a_job_of_jobs_d(self):
        jobs, go, launch = (os.path.join(self.folder, name) for name in ("jobs.d", "go", "launch"))
        os.mkdir(jobs, 0o755)
        write(jobs + "/one.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nnum_processes: 1\nno_python: true\n"
                                  "script: /bin/sleep\nscript_args: ['600']\n", 0o644)
        write(launch, f'#!/bin/sh\ncase "$*" in *check-*) while [ ! -e {go} ]; do sleep 0.05; done;; esac\nexec {ACC} "$@"\n', 0o755)
        daemon = self.daemon("--jobs-dir", jobs, "--launch", launch, "--slots", "1", "--gpus", "none")
        line = Line(daemon.path)
        body = json.dumps({"working_directory": "/", "words": ["--num_processes", "1", "--no_python", "/bin/sleep", "600"], "slots": 1}).encode()
        line.send(b"POST /v1/jobs HTTP/1.1\r\nHost: acc\r\nConnection: close\r\nContent-Type: application/json\r\n"
                  + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        self.assertEqual(daemon.ask("GET", "/v1/jobs").json["jobs"], [])  # it answers what changes nothing
        write(go, "")
        self.assertIn("1 slot", json.loads(line.rest().partition(b"\r\n\r\n")[2])["error"])
        self.assertEqual([job["name"] for job in daemon.ask("GET", "/v1/jobs").json["jobs"]], ["one"])

    def test_a_folder_in_which_all_jobs_have_ended_moves_to_another_node(self):
        first = self.daemon()
        id = self.submit(first, "true")
        first.wait_ended(id)
        first.stop()
        write(os.path.join(first.state, "machine"), json.dumps({"machine_id": "", "host": "node-a"}))
        second = self.daemon()
        self.assertEqual(second.job(id)["state"], "succeeded")
        self.assertRegex(second.log, "state_folder_taken_over.*node-a")
        self.assertNotIn("node-a", read(os.path.join(first.state, "machine")))

    def test_a_first_daemon_was_refused_the_folder_in_which_acc_launch_had_noted_its_times(self):
        environment = {**os.environ, "XDG_STATE_HOME": self.folder, "ACC_HEARTBEAT_FOLDER": os.path.join(ROOT, "runtime/python")}
        # 12 ranks: it learns from 20 intervals, and sees one of each rank a second.
        done = subprocess.run([ACC, "--num_processes", "12", "--hang_timeout", "auto", os.path.join(ROOT, "tests/integration/hang_worker.py"), "25", "200"],
                              env=environment, cwd=self.folder, capture_output=True, text=True, timeout=60 * PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        state = os.path.join(self.folder, "acc")
        self.assertEqual(os.listdir(state), ["hang"])
        daemon = self.started("--slots", "4", "--gpus", "none", "--state-dir", state)
        daemon.path = os.path.join(state, "agent.sock")
        daemon.wait_ready()
        self.assertTrue(os.listdir(os.path.join(state, "hang")))

    def test_a_refused_state_folder_was_made_first_through_what_others_may_change(self):
        shared = os.path.join(self.folder, "shared")
        os.mkdir(shared)
        os.chmod(shared, 0o777)
        daemon = self.started("--state-dir", shared + "/deep/state")
        self.assertEqual(daemon.process.wait(20 * PATIENCE), 1)
        self.assertIn("'" + shared + "', above it, can be written by other users", daemon.log)
        self.assertEqual(os.listdir(shared), [])

    def test_sighup_takes_settings_and_keeps_the_old_ones_where_the_file_is_wrong(self):
        settings = os.path.join(self.folder, "agent.json")
        write(settings, '{"log_level": "warn"} // quiet\n')
        daemon = self.daemon("--settings", settings)
        id = self.submit(daemon, "exec sleep 600")
        self.assertNotIn("listening", daemon.log)
        write(settings, '{"log_level": "info", "prune_jobs": 5}')
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: "reloaded" in daemon.log, "the reload")
        write(settings, '{"prune_job": 5}')
        os.unlink(daemon.path)  # a cleaner of temporary files
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: "reload_refused" in daemon.log and os.path.exists(daemon.path), "the second reload")
        self.assertIn("there is no setting prune_job (did you mean prune-jobs?)", daemon.log)
        self.assertEqual(daemon.job(id)["state"], "running")
        write(settings, '{"log_level": "info", "listen": "127.0.0.1:1"}')
        daemon.process.send_signal(signal.SIGHUP)
        until(lambda: daemon.log.count("reloaded") == 2, "the third reload")  # the second one was refused
        self.assertRegex(daemon.log, r'settings_wait_for_restart settings=listen\s')

    def test_systemd_is_told_when_it_is_ready_alive_and_stopping(self):
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.settimeout(10 * PATIENCE)
        path = os.path.join(self.folder, "notify")
        manager.bind(path)
        os.chmod(path, 0o777)
        # The kernel keeps ten messages, and the daemon drops what doesn't fit: ten signs of life are to take longer than we may stand still.
        daemon = self.daemon(env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "1000000"})

        def told(mark):
            return until(lambda: mark in (text := manager.recv(4096).decode()) and text, mark)

        def make_room():
            while select.select([manager], [], [], 0)[0]:
                manager.recv(4096)
        self.assertIn("slots free", told("READY=1"))
        told("WATCHDOG=1")
        told("WATCHDOG=1")
        make_room()
        daemon.process.send_signal(signal.SIGHUP)
        self.assertIn("MONOTONIC_USEC=", told("RELOADING=1"))
        told("READY=1")
        make_room()
        daemon.stop()
        told("STOPPING=1")

    def test_wrong_options_are_refused_with_the_right_ones(self):
        def refused(*words):
            done = subprocess.run([AGENT, *words], capture_output=True, text=True, timeout=20 * PATIENCE)
            self.assertEqual(done.returncode, 2, done.stderr)
            return done.stderr
        self.assertIn("there is no option --slot (did you mean --slots?)", refused("--slot", "3"))
        self.assertIn("--slots: 'many'", refused("--slots", "many"))
        self.assertIn("--socket needs a value", refused("--socket"))
        self.assertIn("'train.py': no further word is needed", refused("train.py"))
        self.assertIn("read the settings '/nowhere.json'", refused("--settings", "/nowhere.json"))
        both = refused("--slots", "0", "--gpus", "a", "--state-dir", "here")
        for name in ("--slots", "--gpus", "--state-dir"):
            self.assertIn(name, both)


class Documents(DaemonTest):
    def test_the_examples_of_the_operators_page_work_as_they_stand(self):
        page = read(os.path.join(ROOT, "docs/operations.md"))
        section = re.search(r"\n## The service: acc-agent\n(.*?)\n## ", page + "\n## ", re.S)[1]
        commands = [line[2:] for block in re.findall(r"```\n(.*?)```", section, re.S) for line in block.splitlines()
                    if line.startswith("$ ")]
        self.assertGreater(len(commands), 8)
        port = free_port()
        daemon = self.daemon("--http", str(port))
        script = "set -euo pipefail\n" + "".join(f"echo '>' {i}\n{line}\n" for i, line in enumerate(commands))
        script, replaced = re.subn(r"^S=/\S+$", f"S={daemon.path}", script, flags=re.M)
        self.assertEqual(replaced, 1)
        script = script.replace("127.0.0.1:9180", f"127.0.0.1:{port}")
        environment = {**os.environ, "ACC_AGENT_SOCKET": daemon.path, "PATH": BIN + ":" + os.environ["PATH"]}
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120 * SLACK, cwd=self.folder, env=environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn('"error"', done.stdout)
        for expected in ("hello from 0", "hello from 1", "event: end", '"state":"succeeded"', '"slots_free"', '"kind":"ended"', "\n403\n", f":{port}/?token="):
            self.assertIn(expected, done.stdout)


if __name__ == "__main__":
    main()
