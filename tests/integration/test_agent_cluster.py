"""Daemons of three hosts that share a secret: one is asked, another one answers."""
import contextlib, json, os, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time, unittest

from harness import ACC, BIN, PATIENCE, PROGRAMS, SANITIZED, SLACK, main, read, until, write
from hosts import Hosts, needs_hosts
from test_agent_daemon import AGENT, ENDED, Daemon, Events, Line, plain

shutil.copy(os.path.join(BIN, "acc-ctl"), PROGRAMS.name)  # acc-launch --hosts looks for it beside itself
PORT = 29700
ALICE, BOB = 1001, 1002
# A node's users: alice is another number on b, and c doesn't know her.
USERS = {"a": {"alice": ALICE, "bob": BOB}, "b": {"alice": 1005, "bob": BOB, "chief": 0}, "c": {"bob": BOB, "carol": ALICE}}


# A program that forwards each connection to its port, and knows nothing.
RELAY = """
import socket, sys, threading
def copy(one, other):
    try:
        while piece := one.recv(65536):
            other.sendall(piece)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass
door = socket.create_server(("", int(sys.argv[2])))
print("ready", flush=True)
while True:
    near, _ = door.accept()
    far = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    for pair in ((near, far), (far, near)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
"""


class NodeDaemon(Daemon):
    def __init__(self, hosts, host, folder, *flags):
        self.hosts, self.host, self.folder, self.flags = hosts, host, folder, flags
        self.state = os.path.join(folder, host)
        self.path = os.path.join(self.state, "agent.sock")
        self.start()

    def start(self):
        self.log_path = os.path.join(self.folder, f"log-{self.host}-{time.monotonic_ns()}")
        environment = {k: v for k, v in os.environ.items() if k not in ("NOTIFY_SOCKET", "XDG_RUNTIME_DIR", "ACC_SECRET_FILE")}
        with open(self.log_path, "wb") as log:
            self.process = self.hosts.run(self.host, [AGENT, "--state-dir", self.state, "--slots", "8", "--gpus", "none", "--launch", ACC,
                                                      "--jobs-dir", self.folder + "/none", *self.flags],
                                          stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd="/")
        self.pid = self.process.pid
        return self


@needs_hosts
class ClusterTest(unittest.TestCase):
    """a, b and c with daemons; `nodes` of a names all, and one that isn't there."""
    def setUp(self):
        self.hosts = Hosts("a b c d")
        self.addCleanup(self.hosts.close)
        self.folder = tempfile.mkdtemp(prefix="acc-cluster-")
        os.chmod(self.folder, 0o755)
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        names = {name: self.hosts.address(name) for name in ("a", "b", "c", "d")}
        for host in ("a", "b", "c", "d"):
            self.hosts.hosts_entry(host, names)
            users = os.path.join(self.folder, f"passwd-{host}")
            write(users, "root:x:0:0::/root:/bin/sh\n" + "".join(f"{name}:x:{uid}:{uid}::/:/bin/sh\n" for name, uid in USERS.get(host, {}).items()))
            os.chmod(users, 0o644)
            self.hosts.etc[host]["/etc/passwd"] = users
        self.secret = self.make_secret("secret")
        self.daemons = []
        self.addCleanup(self.end_all)

    def make_secret(self, name, text=None):
        path = os.path.join(self.folder, name)
        write(path, (text or os.urandom(32).hex()) + "\n")
        os.chmod(path, 0o600)
        return path

    def end_all(self):
        for daemon in self.daemons:
            with contextlib.suppress(OSError, AssertionError, ValueError):
                if daemon.process.poll() is None:
                    for job in daemon.ask("GET", "/v1/jobs").json["jobs"]:
                        if job["state"] not in ENDED:
                            daemon.ask("POST", f"/v1/jobs/{job['id']}/stop", {"grace_s": 0})
                            daemon.wait_ended(job["id"])
        for daemon in self.daemons:
            if daemon.process.poll() is None:
                daemon.process.kill()
                daemon.process.wait()

    def daemon(self, host, *flags, secret=None, listens=True):
        words = ["--secret-file", secret or self.secret] if secret != "" else []
        daemon = NodeDaemon(self.hosts, host, self.folder, *words, *(["--listen", str(PORT)] if listens else []), *flags)
        self.daemons.append(daemon)
        return daemon.wait_ready()

    def curl(self, daemon, *words, user=0):
        done = subprocess.run(["curl", "-sS", "-m", "60", "--unix-socket", daemon.path, *words], capture_output=True, text=True,
                              user=user, group=user, extra_groups=[], cwd="/")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout) if done.stdout else None

    def submit(self, daemon, shell, through=None, user=0, processes=1, **more):
        body = {"name": "t", "working_directory": "/", **more,
                "words": ["--num_processes", str(processes), "--no_python", "sh", "-c", shell]}
        at = f"/v1/nodes/{through}/v1/jobs" if through else "/v1/jobs"
        answer = self.curl(daemon, "--json", json.dumps(body), "http://acc" + at, user=user)
        self.assertIn("id", answer)
        return answer["id"]

    def raw(self, daemon, target, timeout=60):
        """(status, body, whole): a raw log, its chunks joined."""
        line = Line(daemon.path, timeout)
        line.send(f"GET {target} HTTP/1.1\r\nHost: acc\r\nConnection: close\r\n\r\n")
        head = line.read_to(b"\r\n\r\n") or b"HTTP/1.1 0"
        return int(head.split()[1]), *self.chunks(line, head)

    def chunks(self, line, head, until_size=None):
        pieces, size = [], 0
        if b"Transfer-Encoding: chunked" not in head:
            return line.rest(), True
        while (length := line.read_to(b"\r\n")) is not None:
            n = int(length, 16)
            while len(line.held) < n + 2:
                more = line.socket.recv(1 << 20)
                if not more:
                    return b"".join(pieces) + line.held[:n], False
                line.held += more
            pieces.append(line.held[:n])
            line.held = line.held[n + 2:]
            size += n
            if n == 0:
                return b"".join(pieces), True
            if until_size and size >= until_size:
                return b"".join(pieces), False
        return b"".join(pieces), False


class Proxy(ClusterTest):
    def test_a_user_runs_a_job_on_another_node_under_its_own_name(self):
        a, b = self.daemon("a"), self.daemon("b")
        id = self.submit(a, "id -u; echo bad >&2; exit 3", through="b", user=ALICE)
        texts = {"stdout": "", "stderr": ""}
        for name, data in Events(a.path, f"/v1/nodes/b/v1/jobs/{id}/logs?follow=1"):
            if name == "end":
                self.assertEqual(data["exit_code"], 3)
                break
            texts[name] += data
        self.assertEqual(plain(texts["stdout"]), "1005\n")
        self.assertIn("bad\n", plain(texts["stderr"]))
        job = self.curl(a, f"http://acc/v1/nodes/b/v1/jobs/{id}", user=ALICE)
        self.assertEqual((job["user"], job["state"], job["exit_code"]), ("alice", "failed", 3))
        self.assertEqual(self.curl(a, "http://acc/v1/jobs", user=ALICE), {"jobs": []})
        status, body, whole = self.raw(a, f"/v1/nodes/b/v1/jobs/{id}/logs?stream=stdout&format=raw&follow=1")
        self.assertEqual((status, plain(body.decode()), whole), (200, "1005\n", True))
        self.assertEqual(self.raw(a, f"/v1/nodes/b/v1/jobs/{id}/logs?stream=stdout&format=raw&from=3")[1], body[3:])
        self.assertEqual(self.raw(a, f"/v1/nodes/b/v1/jobs/{id}/logs?stream=stdout&format=raw&from=9999")[0], 416)
        self.curl(a, "-X", "DELETE", f"http://acc/v1/nodes/b/v1/jobs/{id}", user=ALICE)
        self.assertEqual(self.curl(a, f"http://acc/v1/nodes/b/v1/jobs/{id}", user=ALICE)["code"], "not_found")
        self.assertEqual(b.ask("GET", f"/v1/jobs/{id}").status, 404)

    def test_events_and_a_stop_go_through_while_the_job_runs(self):
        a = self.daemon("a")
        self.daemon("b")
        id = self.submit(a, "echo up; exec sleep 600", through="b", user=ALICE)
        for name, data in Events(a.path, f"/v1/nodes/b/v1/jobs/{id}/logs?follow=1"):
            if "up\n" in data:
                break
        seen = []
        events = Events(a.path, "/v1/nodes/b/v1/events?follow=1")
        self.curl(a, "--json", '{"grace_s": 1}', f"http://acc/v1/nodes/b/v1/jobs/{id}/stop", user=ALICE)
        for _, event in events:
            seen.append(event["kind"])
            if event["kind"] == "ended":
                break
        self.assertIn("stopping", seen)

    def test_what_is_missing_on_the_other_node_is_named(self):
        a = self.daemon("a", "--nodes", "a,b,c,d,nowhere")
        self.daemon("b")
        self.daemon("c", secret=self.make_secret("other"))
        for host, code, words in (("d", "no_daemon", r"d:29700 \(10.77.0.4\): connection refused: no acc-agent listens there"),
                                  ("nowhere", "unknown_host", "the host name 'nowhere' is not known here"),
                                  ("c", "authentication_failed", r"c:29700 .*authentication failed.*key id [0-9a-f]{8}"),
                                  ("b:1", "no_daemon", "b:1 .*connection refused"), ("b:0", "bad_request", "HOST"),
                                  ("-x", "bad_request", "HOST")):
            answer = self.curl(a, f"http://acc/v1/nodes/{host}/v1/node", user=ALICE)
            self.assertEqual(answer["code"], code, answer)
            self.assertRegex(answer["error"], words)
        self.assertIn("authentication failed: it named key id", self.daemons[2].log)
        began = time.monotonic()
        nodes = {row["node"]: row for row in self.curl(a, "http://acc/v1/nodes", user=ALICE)["nodes"]}
        self.assertLess(time.monotonic() - began, 12 * SLACK)
        self.assertEqual({name: row["ok"] for name, row in nodes.items()}, {"a": True, "b": True, "c": False, "d": False, "nowhere": False})
        self.assertEqual((nodes["b"]["facts"]["name"], nodes["b"]["facts"]["slots"]), ("b", 8))
        self.assertEqual([nodes[name]["code"] for name in ("c", "d", "nowhere")], ["authentication_failed", "no_daemon", "unknown_host"])
        self.hosts.partition("b")
        began = time.monotonic()
        answer = self.curl(a, "http://acc/v1/nodes/b/v1/node", user=ALICE)
        self.assertEqual(answer["code"], "no_contact")
        self.assertIn("no answer from b:29700", answer["error"])
        self.assertLess(time.monotonic() - began, 12 * SLACK)  # the kernel alone would wait for two minutes
        rows = {row["node"]: row for row in self.curl(a, "http://acc/v1/nodes", user=ALICE)["nodes"]}
        self.assertEqual((rows["b"]["code"], rows["a"]["ok"]), ("no_contact", True))

    def test_fifty_nodes_of_a_cluster_are_listed_by_their_names(self):
        names = [f"n{i}" for i in range(50)]
        known = {name: self.hosts.address(name) for name in "abcd"}
        self.hosts.hosts_entry("a", {**known, **{name: self.hosts.address("b") for name in names}})
        users = os.path.join(self.folder, "passwd-a")
        self.hosts.etc["a"]["/etc/passwd"] = users
        a = self.daemon("a", "--nodes", ",".join(names))
        self.daemon("b")
        rows = self.curl(a, "http://acc/v1/nodes")["nodes"]
        # All are found; that one daemon answers for them is said of all.
        self.assertEqual({row["node"]: row.get("code", "") for row in rows}, dict.fromkeys(names, "wrong_node"))

    def test_without_a_secret_nothing_is_asked_and_nothing_listens(self):
        lone = self.daemon("a", secret="", listens=False)
        answer = self.curl(lone, "http://acc/v1/nodes/b/v1/node", user=ALICE)
        self.assertEqual(answer["code"], "no_secret")
        self.assertIn("this node (a) has no cluster secret", answer["error"])
        launch = {"words": ["x"], "working_directory": "/", "launch": {"id": "t-1", "nodes": 1, "node_rank": 0}}
        answer = self.curl(lone, "--json", json.dumps(launch), "http://acc/v1/jobs", user=ALICE)
        self.assertEqual(answer["code"], "unavailable")
        self.assertIn("launch: this node (a) has no cluster secret", answer["error"])
        self.assertEqual(self.curl(lone, "http://acc/v1/nodes", user=ALICE)["nodes"][0]["facts"]["name"], "a")
        refused = NodeDaemon(self.hosts, "b", self.folder, "--listen", str(PORT))
        self.daemons.append(refused)
        self.assertEqual(refused.process.wait(20 * PATIENCE), 1)
        self.assertIn("--listen: this node (b) has no cluster secret", refused.log)
        self.daemon("d")
        os.mkdir(self.folder + "/second")
        second = NodeDaemon(self.hosts, "d", self.folder + "/second", "--listen", str(PORT), "--secret-file", self.secret)
        self.daemons.append(second)
        second.process.wait(10 * PATIENCE)
        self.assertRegex(second.log, rf"--listen \S+:{PORT}: Address already in use")
        open_file = self.make_secret("readable")
        os.chmod(open_file, 0o644)
        refused = NodeDaemon(self.hosts, "c", self.folder, "--listen", str(PORT), "--secret-file", open_file)
        self.daemons.append(refused)
        self.assertEqual(refused.process.wait(20 * PATIENCE), 1)
        self.assertIn("readable", refused.log)

    def test_users_are_who_the_other_node_says_by_name_alone(self):
        a = self.daemon("a")
        b, c = self.daemon("b"), self.daemon("c")
        answer = self.curl(a, "http://acc/v1/nodes/c/v1/jobs", user=ALICE)
        self.assertEqual(answer["code"], "no_such_user")
        self.assertIn("no such user: 'alice' isn't known on c: make the user there", answer["error"])
        answer = self.curl(a, "http://acc/v1/nodes/b/v1/jobs", user=4711)  # has no name on a
        self.assertEqual(answer["code"], "not_permitted")
        self.assertIn("is a number", answer["error"])
        of_root = self.submit(b, "exec sleep 600")
        for path in (f"/v1/jobs/{of_root}", f"/v1/jobs/{of_root}/logs", f"/v1/jobs/{of_root}/logs?stream=stdout&format=raw"):
            self.assertEqual(self.curl(a, "http://acc/v1/nodes/b" + path, user=ALICE)["code"], "not_found")
        self.assertEqual(self.curl(a, "-X", "POST", f"http://acc/v1/nodes/b/v1/jobs/{of_root}/stop", user=ALICE)["code"], "not_found")
        self.assertEqual(self.curl(a, "--json", '{"reason": "x"}', "http://acc/v1/nodes/b/v1/node/drain", user=ALICE)["code"], "not_permitted")
        forged = ["-H", "X-Acc-User: root", "-H", "x-acc-user: root", "-H", "X-Acc-Key-Id: 1"]
        for at in ("http://acc", "http://acc/v1/nodes/b"):
            daemon = b if at == "http://acc" else a
            self.assertEqual(self.curl(daemon, *forged, f"{at}/v1/jobs/{of_root}", user=ALICE)["code"], "not_found")
        self.assertEqual(self.curl(a, f"http://acc/v1/nodes/b/v1/jobs/{of_root}")["state"], "running")  # root is root
        for twice in ("/v1/nodes/b/v1/nodes/c/v1/node", "/v1/nodes/b/v1/nodes"):
            self.assertEqual(self.curl(a, "http://acc" + twice, user=ALICE)["code"], "bad_request")
        self.assertEqual(self.curl(a, "http://acc/v1/nodes/b/%76%31/nodes/c/v1/node", user=ALICE)["code"], "bad_request")

    def test_a_daemon_that_was_stopped_after_a_request_is_named_as_silent(self):
        """Its connection is kept for the next request, and taken before the daemon is asked whether it lives."""
        a, b = self.daemon("a"), self.daemon("b")
        ask = lambda: self.curl(a, "http://acc/v1/nodes/b/v1/node")
        self.assertEqual(ask()["slots"], 8)
        os.kill(b.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, b.pid, signal.SIGCONT)
        silent = ask()
        self.assertEqual(silent["code"], "no_answer")
        self.assertIn("is the process there stopped", silent["error"])

    def unsent(self, host):
        """Bytes that its kernel has still to send to other daemons, also those of closed connections."""
        table = self.hosts._on(self.hosts.namespace(host), "ss", "-tnH", "state", "all", "dport", f"= :{PORT}")
        return sum(int(line.split()[2]) for line in table.splitlines())

    def test_a_submission_without_an_answer_became_a_job_once_the_network_was_back(self):
        """Its user looked for it, found none, and had submitted again."""
        a, b = self.daemon("a"), self.daemon("b")
        self.assertEqual(self.curl(a, "http://acc/v1/nodes/b/v1/node")["slots"], 8)
        self.hosts.partition("b")
        body = json.dumps({"working_directory": "/", "words": ["--num_processes", "1", "--no_python", "sleep", "60"]})
        answer = self.curl(a, "--json", body, "http://acc/v1/nodes/b/v1/jobs")
        self.assertEqual(answer["code"], "no_answer", answer)
        self.hosts.heal("b")
        until(lambda: not self.unsent("a"), lambda: f"the end of {self.unsent('a')} bytes", 30)
        self.assertEqual(self.curl(a, "http://acc/v1/nodes/b/v1/jobs")["jobs"], [])

    def test_a_submission_whose_user_had_left_became_a_job_once_the_network_was_back(self):
        a, b = self.daemon("a"), self.daemon("b")
        self.assertEqual(self.curl(a, "http://acc/v1/nodes/b/v1/node")["slots"], 8)
        self.hosts.partition("b")
        body = json.dumps({"working_directory": "/", "words": ["--num_processes", "1", "--no_python", "sleep", "60"], "slots": 1})
        curl = subprocess.Popen(["curl", "-sS", "--unix-socket", a.path, "--json", body, "http://acc/v1/nodes/b/v1/jobs"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
        until(lambda: self.unsent("a"), "a request that waits")
        curl.kill()
        curl.wait()
        until(lambda: not self.unsent("a"), lambda: f"{self.unsent('a')} bytes to be given up", 3)
        self.hosts.heal("b")
        self.assertEqual(self.curl(a, "http://acc/v1/nodes/b/v1/jobs")["jobs"], [])

    def test_a_submission_without_an_answer_became_a_job_once_the_daemon_went_on(self):
        a, b = self.daemon("a"), self.daemon("b")
        descriptors = lambda: len(os.listdir(f"/proc/{b.pid}/fd"))
        before = descriptors()
        self.assertEqual(self.curl(a, "http://acc/v1/nodes/b/v1/node")["slots"], 8)
        os.kill(b.pid, signal.SIGSTOP)
        body = json.dumps({"working_directory": "/", "words": ["--num_processes", "1", "--no_python", "sleep", "60"]})
        try:
            answer = self.curl(a, "--json", body, "http://acc/v1/nodes/b/v1/jobs")
        finally:
            os.kill(b.pid, signal.SIGCONT)
        self.assertEqual(answer["code"], "no_answer", answer)
        until(lambda: descriptors() <= before, "the end of the old connections", 10)
        self.assertEqual(self.curl(a, "http://acc/v1/nodes/b/v1/jobs")["jobs"], [])

    def test_a_secret_is_replaced_without_a_restart(self):
        keys = [os.urandom(32).hex() for _ in range(2)]
        files = {host: self.make_secret("secret-" + host, keys[0]) for host in "ab"}
        a, b = (self.daemon(host, secret=files[host]) for host in "ab")
        ask = lambda: self.curl(a, "http://acc/v1/nodes/b/v1/node", user=ALICE)
        self.assertEqual(ask()["name"], "b")
        for text in (f"{keys[0]}\n{keys[1]}", f"{keys[1]}\n{keys[0]}", keys[1]):  # as SECURITY.md says
            for host in "ab":
                self.make_secret("secret-" + host, text)
                self.assertEqual(ask()["name"], "b", text)
        self.make_secret("secret-b", keys[0])
        self.assertEqual(ask()["code"], "authentication_failed")
        os.unlink(files["a"])
        self.assertEqual(ask()["code"], "no_secret")

    def test_a_launch_gets_the_same_secret_on_all_nodes_by_a_descriptor(self):
        fake = os.path.join(self.folder, "launch")
        write(fake, '#!/bin/sh\nfor w in "$@"; do case $w in --secret_fd=*) fd=${w#*=};; --print_plan) exit 0;; esac; done\n'
                    'read -r line <&$fd\necho "secret $line"\ncat <&$fd\necho "words $*"\nenv\nls /proc/self/fd\nsleep 1\n')
        os.chmod(fake, 0o755)
        a, b = self.daemon("a", "--launch", fake), self.daemon("b", "--launch", fake)
        shown = {}
        for name, at, launch, rank, user in (("a", "", "t-1", 0, ALICE), ("b", "/v1/nodes/b", "t-1", 1, ALICE), ("other", "", "t-2", 0, ALICE),
                                             ("thief", "", "t-1", 0, BOB)):
            body = {"words": ["train.py"], "working_directory": "/", "launch": {"id": launch, "nodes": 2, "node_rank": rank}}
            id = self.curl(a, "--json", json.dumps(body), f"http://acc{at}/v1/jobs", user=user)["id"]
            text = self.raw(a, f"{at}/v1/jobs/{id}/logs?stream=stdout&format=raw&follow=1")[1].decode()
            shown[name] = re.search(r"^secret ([0-9a-f]{64})$", text, re.M)[1]
            rest = text.replace(f"secret {shown[name]}\n", "")
            self.assertNotIn(shown[name], rest)
            self.assertIn("--secret_fd=5", rest)
            self.assertNotIn(shown[name], read(os.path.join((b if at else a).state, "jobs", id, "job.json")))
        self.assertEqual(shown["a"], shown["b"])
        self.assertNotIn(shown["a"], (shown["other"], shown["thief"]))
        self.assertNotIn(read(self.secret).strip(), shown["a"])
        for daemon in (a, b):
            self.assertNotIn(shown["a"], daemon.log)

    def test_a_check_says_what_would_go_wrong_and_keeps_nothing(self):
        a, b = self.daemon("a"), self.daemon("b")
        script = os.path.join(self.folder, "train.py")
        write(script, "print(1)\n")

        def check(words, folder="/", user=ALICE, **more):
            body = {"words": words, "working_directory": folder, "check": True, **more}
            return self.curl(a, "--json", json.dumps(body), "http://acc/v1/nodes/b/v1/jobs", user=user)
        fine = check(["--num_processes", "2", script], slots=2)
        self.assertEqual({k: fine[k] for k in ("ok", "user", "slots_free")}, {"ok": True, "user": "alice", "slots_free": 8})
        self.assertIn("/nowhere", check([script], "/nowhere")["error"])
        missing = check(["--num_processes", "1", self.folder + "/missing.py"])
        self.assertRegex(missing["error"], "the script '.*missing.py' can't be read in '/' on b by user alice: No such file or directory; files aren't copied")
        # a program where a script is expected: the hint that a plain acc-launch gives, too
        self.assertRegex(check(["--num_processes", "1", "id"])["error"], r"'id' .*a program on PATH\? add --no_python\).*files aren't copied")
        self.assertIn("the program 'nothing-such'", check(["--num_processes", "1", "--no_python", "nothing-such"])["error"])
        self.assertTrue(check(["--num_processes", "1", "--no_python", "sh", "-c", "true"])["ok"])
        self.assertIn("num_procesess", check(["--num_procesess", "1", script])["error"])
        busy = self.submit(b, "exec sleep 600", slots=8)
        self.assertIn("no room: it needs 1 slot", check([script])["error"])
        self.curl(b, "--json", '{"grace_s": 0}', f"http://acc/v1/jobs/{busy}/stop")
        b.wait_ended(busy)
        self.curl(b, "-X", "DELETE", f"http://acc/v1/jobs/{busy}")
        self.assertRegex(check([script], slots=9)["error"], "this node has 8 slots in all: ask for fewer, or raise that in the settings of its acc-agent")
        self.curl(b, "--json", '{"reason": "new disk"}', "http://acc/v1/node/drain")
        self.assertIn("drained: new disk", check([script])["error"])
        self.assertEqual(b.ask("GET", "/v1/jobs").json, {"jobs": []})
        self.assertEqual(b.ask("GET", "/v1/events").json["events"][-1]["kind"], "drained")


class Relays(ClusterTest):
    """What stands at b's address and port forwards connections to another node, where the handshake succeeds: all have one secret."""
    def relay(self, host, to):
        program = self.hosts.run(host, [sys.executable, "-c", RELAY, self.hosts.address(to), str(PORT)], stdout=subprocess.PIPE)
        self.addCleanup(program.wait)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), b"ready\n")
        return program

    def know(self, host, **addresses):
        """What that host takes for the addresses of names, beside its users."""
        users = os.path.join(self.folder, f"passwd-{host}")
        self.hosts.hosts_entry(host, {**{name: self.hosts.address(name) for name in "abcd"}, **addresses})
        self.hosts.etc[host]["/etc/passwd"] = users

    def asked(self, daemon, node):
        answer = self.curl(daemon, f"http://acc/v1/nodes/{node}/v1/node")
        return answer.get("code") or answer["name"]

    def nodes(self, daemon):
        return {row["node"]: row.get("code") or row["facts"]["name"] for row in self.curl(daemon, "http://acc/v1/nodes")["nodes"]}

    def test_a_relay_at_the_address_of_a_node_drained_the_node_that_asked_and_stopped_its_job(self):
        a = self.daemon("a", "--nodes", "a,b")
        self.relay("b", to="a")
        job = self.submit(a, "sleep 600")
        for target, body in (("drain", {"reason": "b"}), (f"jobs/{job}/stop", {}), ("jobs", {"name": "x", "words": ["--no_python", "true"], "working_directory": "/"})):
            answer = self.curl(a, "--json", json.dumps(body), f"http://acc/v1/nodes/b/v1/{target}")
            self.assertEqual(answer.get("code"), "wrong_node", answer)
            self.assertIn("b leads back to this node, a: nothing was asked of it", answer["error"])
        self.assertEqual(self.nodes(a), {"a": "a", "b": "wrong_node"})
        self.assertFalse(self.curl(a, "http://acc/v1/node").get("drained"))
        self.assertEqual([(one["id"], one["state"]) for one in self.curl(a, "http://acc/v1/jobs")["jobs"]], [(job, "running")])
        self.assertEqual(self.curl(a, f"http://acc/v1/nodes/{self.hosts.address('b')}/v1/node")["code"], "wrong_node")
        # Its own names lead to it directly.
        for own in ("a", self.hosts.address("a"), f"127.0.0.1:{PORT}"):
            self.assertEqual(self.curl(a, f"http://acc/v1/nodes/{own}/v1/node").get("name"), "a")

    def test_acc_launch_ran_the_part_of_a_node_on_another_one(self):
        a = self.daemon("a", "--nodes", "a,b")
        self.relay("b", to="a")
        done = self.hosts.run("a", [ACC, "--hosts", "b:1", "--no_python", "sh", "-c", "echo here"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/",
                              env={**os.environ, "ACC_AGENT_SOCKET": a.path})
        out, err = done.communicate(timeout=60 * PATIENCE)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(out, "")
        self.assertIn("leads back to this node", err)

    def test_a_relay_to_a_third_node_is_noticed_by_the_names_of_the_settings(self):
        a, c = self.daemon("a", "--nodes", "a,b,c"), self.daemon("c")
        self.relay("b", to="c")
        answer = self.curl(a, "--json", "{}", "http://acc/v1/nodes/b/v1/drain")
        self.assertEqual(answer.get("code"), "wrong_node", answer)
        self.assertIn("b is answered by the acc-agent of 'c', which is the node c", answer["error"])
        self.assertFalse(self.curl(c, "http://acc/v1/node").get("drained"))
        self.assertEqual(self.nodes(a), {"a": "a", "b": "wrong_node", "c": "c"})

    def test_after_the_list_of_a_user_whom_a_node_does_not_know_an_order_for_another_one_was_carried_out_there(self):
        a, c = self.daemon("a", "--nodes", "a,b,c"), self.daemon("c")
        self.relay("b", to="c")
        rows = self.curl(a, "http://acc/v1/nodes", user=ALICE)["nodes"]
        self.assertEqual({row["node"]: row.get("code", "") for row in rows}, {"a": "", "b": "refused", "c": "refused"})
        answer = self.curl(a, "--json", json.dumps({"reason": "disks"}), "http://acc/v1/nodes/b/v1/node/drain")
        self.assertEqual(answer.get("code"), "wrong_node", answer)
        self.assertFalse(self.curl(c, "http://acc/v1/node").get("drained"))

    def test_a_node_named_by_its_address_was_drained_in_another_ones_place_after_a_restart(self):
        names = [self.hosts.address(name) for name in "abc"]
        a = self.daemon("a", "--nodes", ",".join(names))
        b, c = self.daemon("b"), self.daemon("c")
        self.assertEqual(self.nodes(a), dict(zip(names, "abc")))
        b.process.kill()
        b.process.wait()
        self.relay("b", to="c")
        drain = ("--json", json.dumps({"reason": "disks"}), f"http://acc/v1/nodes/{names[1]}/v1/node/drain")
        self.assertEqual(self.curl(a, *drain).get("code"), "wrong_node")
        c.process.kill()
        c.process.wait()
        c.start().wait_ready()
        self.assertEqual(self.curl(a, *drain).get("code"), "wrong_node")
        self.assertFalse(self.curl(c, "http://acc/v1/node").get("drained"))

    def test_a_node_that_did_not_answer_was_taken_for_the_one_whose_orders_lead_to_it(self):
        """c takes a's connections no more, and those of b's relay still: what changes something isn't asked of it, what looks is."""
        a, c = self.daemon("a", "--nodes", "a,b,c,d"), self.daemon("c")
        d = self.daemon("d")
        self.relay("b", to="c")
        self.hosts.partition_between("a", "c")
        answer = self.curl(a, "--json", json.dumps({"reason": "disks"}), "http://acc/v1/nodes/b/v1/node/drain")
        self.assertEqual(answer.get("code"), "unproven_node", answer)
        self.assertIn("nothing was changed", answer["error"])
        self.assertFalse(self.curl(c, "http://acc/v1/node").get("drained"))
        self.assertEqual(self.asked(a, "b"), "c")
        self.assertNotIn("code", self.curl(a, "--json", json.dumps({"reason": "disks"}), "http://acc/v1/nodes/d/v1/node/drain") or {})
        self.assertEqual(self.curl(d, "http://acc/v1/node").get("drained"), "disks")

    def test_a_node_behind_an_address_that_is_forwarded_is_reached_also_by_itself(self):
        """As with a container's published port: no name of the settings leads to the node directly."""
        self.relay("b", to="a")
        self.relay("d", to="c")
        names = f"{self.hosts.address('b')},{self.hosts.address('d')}"
        a = self.daemon("a", "--nodes", names)
        self.daemon("c", "--nodes", names)
        self.assertEqual(self.nodes(a), {self.hosts.address("b"): "a", self.hosts.address("d"): "c"})
        for name, host in zip(names.split(","), "ac"):
            self.assertEqual(self.curl(a, f"http://acc/v1/nodes/{name}/v1/node").get("name"), host)

    def test_an_order_for_a_node_whose_name_leads_to_this_host_was_carried_out_here(self):
        for address in ("127.0.1.1", self.hosts.address("a")):
            self.know("a", b=address)
            a = self.daemon("a", "--nodes", "a,b")
            answer = self.curl(a, "--json", json.dumps({"reason": "b"}), "http://acc/v1/nodes/b/v1/node/drain")
            self.assertEqual(answer.get("code"), "wrong_node", answer)
            self.assertIn("b leads back to this node, a", answer["error"])
            self.assertFalse(self.curl(a, "http://acc/v1/node").get("drained"))
            self.assertEqual(self.nodes(a), {"a": "a", "b": "wrong_node"})
            a.process.kill()
            a.process.wait()
        for own in (self.hosts.address("a"), "localhost"):
            a = self.daemon("a", "--nodes", f"c,{own}")
            self.assertEqual([self.asked(a, own), self.nodes(a)[own]], ["a", "a"])
            a.process.kill()
            a.process.wait()

    def test_a_node_named_with_its_port_or_in_capitals_was_not_checked(self):
        a = self.daemon("a", "--nodes", "a,b,c")
        self.daemon("c")
        self.relay("b", to="c")
        for name in (f"b:{PORT}", "B", "b"):
            self.assertEqual(self.asked(a, name), "wrong_node", name)

    def test_a_node_behind_a_translated_address_was_refused_by_its_name_with_the_port(self):
        self.relay("b", to="a")
        a = self.daemon("a", "--nodes", f"{self.hosts.address('b')},c")
        self.assertEqual([self.asked(a, self.hosts.address("b") + port) for port in (f":{PORT}", "")], ["a", "a"])

    def test_a_relay_that_has_ended_kept_a_healthy_node_from_being_asked(self):
        names = [self.hosts.address(name) for name in "abc"]
        a = self.daemon("a", "--nodes", ",".join(names))
        self.daemon("c")
        relay = self.relay("b", to="c")
        # Which of the two is right nothing says; this node, directly, is.
        self.assertEqual(self.nodes(a), dict(zip(names, ("a", "wrong_node", "wrong_node"))))
        relay.kill()
        relay.wait()
        self.assertEqual([self.asked(a, name) for name in names], ["a", "no_daemon", "c"])
        relay = self.relay("b", to="a")
        self.assertEqual(self.nodes(a), dict(zip(names, ("a", "wrong_node", "c"))))

    def test_nodes_that_took_each_others_address_were_refused_for_ten_minutes(self):
        self.know("a", x=self.hosts.address("b"), y=self.hosts.address("d"))
        a = self.daemon("a", "--nodes", "a,x,y")
        b, _ = self.daemon("b"), self.daemon("c")
        relay = self.relay("d", to="c")
        self.assertEqual(self.nodes(a), {"a": "a", "x": "b", "y": "c"})
        b.process.kill()
        b.process.wait()
        relay.kill()
        relay.wait()
        self.relay("b", to="c")  # the address of x is c's now, and that of y nobody's
        self.assertEqual(self.asked(a, "x"), "c")

    def test_the_own_public_name_was_refused_without_any_nodes_in_the_settings(self):
        self.relay("b", to="a")
        a = self.daemon("a")
        self.assertEqual(self.asked(a, self.hosts.address("b")), "a")

    def test_a_node_was_refused_whose_host_name_is_that_of_another_name_of_the_settings(self):
        """As hosts made from one image: x is the host that calls itself c, and c another one."""
        self.know("a", x=self.hosts.address("c"), c=self.hosts.address("b"))
        a = self.daemon("a", "--nodes", "a,c,x")
        b = self.daemon("b")
        self.daemon("c")
        self.assertEqual([self.asked(a, name) for name in "xc"], ["c", "b"])
        self.assertEqual(self.nodes(a), {"a": "a", "c": "b", "x": "c"})
        b.process.kill()
        b.process.wait()
        self.assertEqual(self.asked(a, "x"), "c")


def was_late(answer):
    """A daemon, the look-up of its name or the connections before this one took as long as the one that was asked waits: to be asked again."""
    return answer.startswith(b"HTTP/1.1 504 ") or b"DNS servers don't answer in time" in answer or b"are being made at once: try again" in answer


class Bursts(ClusterTest):
    def assert_refused_nobody(self, daemon):
        """It may be the other daemon that closed a connection: it gives a first try a quarter of its time."""
        why = set(re.findall(r'peer_refused .*why="([^"]*)"', daemon.log))
        self.assertEqual(why - {"closed the connection during the handshake"}, set(), daemon.log)

    def burst(self, daemons, count):
        """`count` requests for b's facts of each daemon, all sent before any answer is read; what is refused."""
        left, refused = [daemon for daemon in daemons for _ in range(count)], []

        def ask():
            lines = [Line(daemon.path, 60) for daemon in left]
            for line in lines:
                line.send("GET /v1/nodes/b/v1/node HTTP/1.1\r\nHost: acc\r\nConnection: close\r\n\r\n")
            answers = [line.rest() for line in lines]
            for line in lines:
                line.close()
            refused.extend(answer for answer in answers if not answer.startswith(b"HTTP/1.1 200 ") and not was_late(answer))
            left[:] = [daemon for daemon, answer in zip(left, answers) if was_late(answer)]
            return not left
        until(ask, lambda: f"answers of b to {len(left)} requests")
        return refused

    def test_sixty_four_requests_at_once_through_one_node_all_succeed(self):
        a, b = self.daemon("a"), self.daemon("b")
        self.assertEqual(self.burst([a], 64), [])
        self.assertEqual(self.burst([a], 250), [])
        self.assert_refused_nobody(b)

    @unittest.skipIf(SANITIZED, "160 handshakes at once take it longer than one daemon waits for another")
    def test_more_connections_of_one_host_than_are_taken_at_once_are_tried_again(self):
        """Five daemons on one address: 160 handshakes at once, where 64 of an address are taken."""
        b = self.daemon("b")
        daemons = []
        for number in range(5):
            folder = os.path.join(self.folder, f"of-{number}")
            os.mkdir(folder)
            daemons.append(NodeDaemon(self.hosts, "a", folder, "--secret-file", self.secret))
            self.daemons.append(daemons[-1])
        for daemon in daemons:
            daemon.wait_ready()
        self.assertEqual(self.burst(daemons, 40), [])
        self.assertNotIn("authentication failed", b.log)

    def test_members_of_a_launch_behind_one_address_wait_for_their_turn_and_none_is_refused(self):
        """150 handshakes of one address at once that name the cluster's key and then stand still: each has its turn, 64 at a time."""
        a, b = self.daemon("a"), self.daemon("b")
        hello = self.hello(a)
        code = ("import selectors,socket,sys,time\nhello=bytes.fromhex(sys.argv[2]); wait=selectors.DefaultSelector()\n"
                "for i in range(150):\n s=socket.create_connection((sys.argv[1],%d)); s.send(hello); wait.register(s,1)\n"
                "got=''; end=time.monotonic()+float(sys.argv[3])\n"
                "while len(got)<300 and time.monotonic()<end:\n"
                " for key,_ in wait.select(0.1):\n  got+=(key.fileobj.recv(1) or b'\\0').hex(); wait.unregister(key.fileobj)\n"
                "print(got)" % PORT)
        self.assertEqual(self.hosts.output("d", "python3", "-c", code, self.hosts.address("b"), hello, "25").strip(), "16" * 150)
        self.assertEqual(self.curl(a, "http://acc/v1/nodes/b/v1/node")["name"], "b")

    def test_the_streams_of_a_launch_whose_hosts_stand_behind_one_address_are_all_served(self):
        """Two streams of each of 150 hosts."""
        a, b = self.daemon("a"), self.daemon("b")
        job = self.submit(b, "echo up; exec sleep 600")
        served = []

        def ask_for(count):
            lines = [Line(a.path, 60) for _ in range(count)]
            for line in lines:
                self.addCleanup(line.close)
                line.send(f"GET /v1/nodes/b/v1/jobs/{job}/logs?stream=stdout&format=raw&follow=1 HTTP/1.1\r\nHost: acc\r\n\r\n")
            answers = [line.read_to(b"\r\n\r\n") for line in lines]
            served.extend(line for line, answer in zip(lines, answers) if answer.startswith(b"HTTP/1.1 200 "))
            others = [answer + line.read_to(b"}") for line, answer in zip(lines, answers) if line not in served]
            self.assertEqual([answer for answer in others if not was_late(answer)], [])
            return len(served) == 300
        until(lambda: ask_for(300 - len(served)), lambda: f"300 streams, have {len(served)}")
        self.assert_refused_nobody(b)

    def test_one_users_streams_of_a_node_kept_others_and_root_from_it(self):
        """1,072 streams of one user: 1,024 are served, the rest are refused with the cause; that user still asks for a state, and stops a job."""
        a, b = self.daemon("a"), self.daemon("b")
        job = self.submit(a, "exec sleep 600", "b", ALICE)
        code = ("import collections,resource,socket,sys\nresource.setrlimit(resource.RLIMIT_NOFILE,(2000,2000)); heads=collections.Counter(); lines=[]\n"
                "def ask():\n s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); lines.append(s)\n"
                " s.sendall(b'GET /v1/nodes/b/v1/events?follow=1 HTTP/1.1\\r\\nHost: acc\\r\\n\\r\\n'); return s\n"
                "for _ in range(67):\n"
                " for s in [ask() for _ in range(16)]: text=s.recv(4000); heads[text[9:12]]+=1\n"
                "print(dict(heads), text, flush=True); sys.stdin.read()")
        flood = subprocess.Popen(["/usr/bin/python3", "-c", code, a.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=ALICE, group=ALICE, extra_groups=[], cwd="/")
        self.addCleanup(flood.communicate)
        said = flood.stdout.readline()
        self.assertIn("{b'200': 1024, b'429': 48}", said)
        self.assertIn("too many streams of this user to b are open on this node", said)
        alias = self.curl(a, f"http://acc/v1/nodes/{self.hosts.address('b')}/v1/events?follow=1", user=ALICE)
        self.assertEqual(alias.get("code"), "node_full", alias)
        self.assertEqual(self.curl(a, f"http://acc/v1/nodes/b/v1/jobs/{job}", user=ALICE).get("id"), job)
        self.curl(a, "-X", "POST", f"http://acc/v1/nodes/b/v1/jobs/{job}/stop", user=ALICE)
        until(lambda: self.curl(a, f"http://acc/v1/nodes/b/v1/jobs/{job}", user=ALICE)["state"] == "stopped", "the end of the job")
        for user in (BOB, 0):
            self.assertEqual(self.curl(a, "http://acc/v1/nodes/b/v1/node", user=user).get("name"), "b")

    def hello(self, a):
        """The first message of a's daemon to another one, which anybody on the way can read."""
        listener = self.hosts.run("d", ["python3", "-c", "import socket,sys\ns=socket.create_server(('',%d)); print('up',flush=True)\n"
                                        "print(s.accept()[0].recv(4000).hex(),flush=True)" % PORT], stdout=subprocess.PIPE, text=True)
        self.addCleanup(listener.communicate)
        self.assertEqual(listener.stdout.readline().strip(), "up")
        self.assertGreaterEqual(self.raw(a, "/v1/nodes/d/v1/node")[0], 500)
        return listener.stdout.readline().strip()

    def test_first_messages_that_a_user_sends_again_kept_root_on_that_host_from_a_node(self):
        a, _ = self.daemon("a"), self.daemon("b")
        code = ("import selectors,socket,sys\nhello=bytes.fromhex(sys.argv[2]); wait=selectors.DefaultSelector()\n"
                "def open_one():\n s=socket.create_connection((sys.argv[1],%d)); s.setblocking(False); s.send(hello); wait.register(s,1)\n"
                "for i in range(400): open_one()\nprint('up',flush=True)\n"
                "while True:\n"
                " for key,_ in wait.select():\n"
                "  try: gone=not key.fileobj.recv(4000)\n"
                "  except OSError: gone=True\n"
                "  if gone: wait.unregister(key.fileobj); key.fileobj.close(); open_one()" % PORT)
        flood = self.hosts.run("a", [sys.executable, "-c", code, self.hosts.address("b"), self.hello(a)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(flood.communicate)
        self.addCleanup(flood.kill)
        self.assertEqual(flood.stdout.readline().strip(), "up")

        def status():  # each time a connection of its own is made
            line = Line(a.path, 60)
            self.addCleanup(line.close)
            line.send("GET /v1/nodes/b/v1/events?follow=1 HTTP/1.1\r\nHost: acc\r\n\r\n")
            return line.read_to(b"\r\n\r\n")[9:12]

        # The first one finds out that b is crowded, and has three quarters of its time left then: little on a busy machine.
        until(lambda: status() == b"200", "root's first stream", 10)
        self.assertEqual([status() for _ in range(6)], [b"200"] * 6)

    def test_a_peer_that_is_crowded_out_gets_the_alert_for_it(self):
        """65 connections of one host that say nothing: the oldest is closed, in words of TLS."""
        self.daemon("b")
        code = ("import socket,sys\nlines=[socket.create_connection((sys.argv[1],%d)) for _ in range(65)]\n"
                "lines[0].settimeout(10)\nprint(lines[0].recv(100).hex())" % PORT)
        self.assertEqual(self.hosts.output("d", "python3", "-c", code, self.hosts.address("b")).strip(), "1503030002025a")


class Strangers(ClusterTest):
    def test_five_hundred_connections_that_prove_nothing_cost_little(self):
        a, b = self.daemon("a"), self.daemon("b")

        def seconds_of(requests):
            seconds = []
            for _ in range(requests):
                began = time.monotonic()
                answer = self.curl(a, "http://acc/v1/nodes/b/v1/node", user=ALICE)
                self.assertTrue(answer.get("name") == "b" or answer.get("code") in ("no_answer", "no_contact"), answer)
                seconds.append(time.monotonic() - began if "name" in answer else float("inf"))
            return sorted(seconds)

        alone = seconds_of(7)[3]  # on this machine, with what it does besides
        before = b.status_of("VmRSS")
        code = ("import os,socket,sys\nlines=[]\n"
                "for i in range(500):\n s=socket.create_connection((sys.argv[1],%d)); lines.append(s)\n"
                " try:\n  if i%%3==1: s.send(os.urandom(2000))\n  if i%%3==2: s.send(b'\\x16\\x03\\x01\\x02\\x00'+os.urandom(30))\n except OSError: pass\n"
                "print('up',flush=True)\nsys.stdin.read()\n" % PORT)
        stranger = self.hosts.run("d", ["python3", "-c", code, self.hosts.address("b")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(stranger.communicate)
        self.assertEqual(stranger.stdout.readline().strip(), "up")
        seconds = seconds_of(20)
        self.assertLess(seconds[10], 2 * SLACK + 2 * alone, seconds)
        self.assertLess(seconds[17], 6 * SLACK + 2 * alone, seconds)  # one or another is the machine's, which stood still
        if not SANITIZED:
            self.assertLess(b.status_of("VmRSS") - before, 8 * 1024)
        until(lambda: len(os.listdir(f"/proc/{b.pid}/fd")) < 40, "the closing of all", 20)
        self.assertLessEqual(b.log.count("peer_refused"), 10)

    def test_connections_that_name_the_key_and_prove_nothing_are_bounded_over_all_sources(self):
        """Its id goes over the wire in clear: it is learnt here from what the daemon sends to whom it asks."""
        a, b = self.daemon("a"), self.daemon("b")
        code = ("import re,socket,sys\nlisten=socket.create_server(('127.0.0.1',0)); ask=socket.socket(socket.AF_UNIX); ask.connect(sys.argv[1])\n"
                "ask.sendall(b'GET /v1/nodes/127.0.0.1:%d/healthz HTTP/1.1\\r\\nHost: acc\\r\\n\\r\\n' % listen.getsockname()[1])\n"
                "name=re.search(rb'acc1:[0-9a-f]{8}:', listen.accept()[0].recv(4096))[0]; lines=[]\n"
                "for i in range(1800):\n s=socket.socket(); s.bind((f'127.1.0.{1 + i // 300}',0)); s.connect(('127.0.0.1',int(sys.argv[2]))); lines.append(s)\n"
                " try: s.send(b'\\x16\\x03\\x01\\x02\\x00'+b'x'*60+name)\n except OSError: pass\n"
                "print('up',flush=True)\nsys.stdin.read()\n")
        stranger = self.hosts.run("b", ["prlimit", "--nofile=4096:4096", "python3", "-c", code, b.path, str(PORT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(stranger.communicate)
        self.assertEqual(stranger.stdout.readline().strip(), "up")
        self.assertLess(len(os.listdir(f"/proc/{b.pid}/fd")), 1100)
        until(lambda: self.curl(a, "http://acc/v1/nodes/b/v1/node", user=ALICE).get("name") == "b", "an answer of b")
        until(lambda: len(os.listdir(f"/proc/{b.pid}/fd")) < 40, "the closing of all", 20)

    def test_another_program_at_the_port_gets_words_or_an_alert_and_the_end(self):
        self.daemon("b")
        done = self.hosts.output("d", "curl", "-sS", "-m", "10", f"http://{self.hosts.address('b')}:{PORT}/v1/jobs")
        self.assertIn("this port speaks TLS with the cluster's secret", json.loads(done)["error"])
        code = ("import socket,sys\ns=socket.create_connection((sys.argv[1],%d)); s.settimeout(10)\ns.send(b'HELO there\\r\\n')\n"
                "got=b''\nwhile (m:=s.recv(100)): got+=m\nprint(got.hex())" % PORT)
        self.assertEqual(self.hosts.output("d", "python3", "-c", code, self.hosts.address("b")).strip(), "15030300020228")

    @unittest.skipIf(SANITIZED, "a sanitizer has memory and threads of its own")
    def test_an_open_door_costs_no_wake_ups_and_little_memory(self):
        b = self.daemon("b")
        switches = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")

        def quiet():
            before = [b.status_of(one) for one in switches]
            time.sleep(5)
            return [b.status_of(one) for one in switches] == before
        self.assertTrue(quiet() or quiet(), "wake-ups of an idle daemon")
        self.assertLessEqual(b.status_of("VmRSS"), 8 * 1024)


class Streams(ClusterTest):
    LINES = 200000

    def test_four_workers_lines_come_through_whole_and_fast(self):
        a = self.daemon("a")
        self.daemon("b")
        id = self.submit(a, f"seq -f %.0f-$RANK 1 {self.LINES}", through="b", user=ALICE, processes=4, slots=4)
        body = self.raw(a, f"/v1/nodes/b/v1/jobs/{id}/logs?stream=stdout&format=raw&follow=1", 120)[1]
        seconds = []
        while len(seconds) < 1 or (len(seconds) < 8 and 4 * self.LINES / min(seconds) < 300_000 / SLACK):  # the machine's other work makes one slow
            began = time.monotonic()
            again, whole = self.raw(a, f"/v1/nodes/b/v1/jobs/{id}/logs?stream=stdout&format=raw&follow=1", 120)[1:]
            seconds.append(time.monotonic() - began)
            self.assertTrue(whole and again == body, "a second reading differs")
        seconds = min(seconds)
        ranks = {str(rank): [] for rank in range(4)}
        for line in plain(body.decode()).splitlines():
            number, _, rank = line.partition("-")
            ranks[rank].append(number)
        expected = [str(i) for i in range(1, self.LINES + 1)]
        for rank, lines in ranks.items():
            self.assertTrue(lines == expected, f"rank {rank}: {len(lines)} lines, torn, lost or out of order")
        print(f"{4 * self.LINES} lines in {seconds:.2f} s: {4 * self.LINES / seconds:,.0f} a second")
        if not SANITIZED:
            self.assertGreater(4 * self.LINES / seconds, 300_000 / SLACK)

    def test_a_reader_that_stops_costs_little_on_both_nodes(self):
        a, b = self.daemon("a"), self.daemon("b")
        id = self.submit(a, "seq 1 3000000", through="b", user=ALICE)
        until(lambda: b.job(id)["state"] in ENDED, "the job's end", 60)
        # What each has at work, before anything is held.
        self.raw(a, f"/v1/nodes/b/v1/jobs/{id}/logs?stream=stdout&format=raw&from=20000000")
        before = a.status_of("VmRSS"), b.status_of("VmRSS")
        lines = []
        for _ in range(10):
            line = Line(a.path, 60)
            line.send(f"GET /v1/nodes/b/v1/jobs/{id}/logs?stream=stdout&format=raw&follow=1 HTTP/1.1\r\nHost: acc\r\nConnection: close\r\n\r\n")
            lines.append((line, line.read_to(b"\r\n\r\n")))
        until(lambda: self.is_still(a, b), "the end of all movement", 20)
        if not SANITIZED:
            for daemon, was in ((a, before[0]), (b, before[1])):
                self.assertLess(daemon.status_of("VmRSS") - was, 4 * 1024, daemon.host)
        body, whole = self.chunks(*lines[3])
        self.assertTrue(whole and plain(body.decode()) == "".join(f"{i}\n" for i in range(1, 3000001)), "lines were lost or torn")
        for line, _ in lines:
            line.close()
        until(lambda: all(len(os.listdir(f"/proc/{d.pid}/fd")) < 40 for d in (a, b)), "the closing of all")

    def is_still(self, *daemons):
        switches = lambda: [d.status_of("voluntary_ctxt_switches") for d in daemons]
        before = switches()
        time.sleep(0.3)
        return before == switches()

    def test_a_reader_goes_on_by_offset_when_both_daemons_were_killed(self):
        a, b = self.daemon("a"), self.daemon("b")
        # It talks until all kills are over: a stream that has come to its end doesn't break off.
        go = os.path.join(self.folder, "go")
        id = self.submit(a, f"i=0; while [ $i -lt 300 -o ! -e {go} ]; do i=$((i+1)); echo line $i; sleep 0.01; done; exit 5", through="b", user=ALICE)
        body, whole, kills = b"", False, [a, b, a, b]
        while not whole:
            line = Line(a.path, 60)
            line.send(f"GET /v1/nodes/b/v1/jobs/{id}/logs?stream=stdout&format=raw&follow=1&from={len(body)} HTTP/1.1\r\nHost: acc\r\n\r\n")
            head = line.read_to(b"\r\n\r\n")
            self.assertIn(b" 200 ", head.split(b"\r\n")[0])
            killed = kills.pop(0) if kills else None
            more, whole = self.chunks(line, head, 200 if killed else None)
            body += more
            if killed:
                self.assertFalse(whole)
                killed.process.kill()
                killed.process.wait()
                rest, ended = self.chunks(line, head)
                self.assertFalse(ended, "a stream that broke off looks whole")
                body += rest
                killed.start().wait_ready()
                if not kills:
                    write(go, "")
            line.close()
        lines = [row for row in plain(body.decode()).splitlines() if row.startswith("line ")]
        self.assertGreaterEqual(len(lines), 300)
        self.assertEqual(lines, [f"line {i}" for i in range(1, len(lines) + 1)])
        job = b.wait_ended(id)
        self.assertEqual((job["exit_code"], job["starts"]), (5, 1))


if __name__ == "__main__":
    main()
