"""acc-ctl: against jobs of plain acc-launch, against a service that a test plays, and against acc-agent itself."""
import contextlib, http.server, json, os, select, shutil, signal, socket, socketserver, subprocess, tempfile, threading, time, unittest

from harness import ACC, BIN, PATIENCE, PROGRAMS, SLACK, JobTest, hide_other_jobs, main, read, until

CTL = shutil.copy(os.path.join(BIN, "acc-ctl"), PROGRAMS.name)
AGENT = os.path.join(BIN, "acc-agent")


class CtlTest(JobTest):
    def setUp(self):
        self.runtime = tempfile.mkdtemp(prefix="acc-runtime-")
        os.chmod(self.runtime, 0o700)
        self.addCleanup(shutil.rmtree, self.runtime, ignore_errors=True)
        self.environment = {k: v for k, v in os.environ.items() if k != "ACC_AGENT_SOCKET"}
        self.environment.update(XDG_RUNTIME_DIR=self.runtime, HOME=self.runtime)

    def popen(self, *words, **options):
        return subprocess.Popen([CTL, *words], env=self.environment, cwd=self.runtime, text=True, stdin=subprocess.DEVNULL,
                                **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})

    def ctl(self, *words, code=0, **options):
        process = self.popen(*words, **options)
        try:
            out, err = process.communicate(timeout=30 * PATIENCE)
        finally:
            process.kill()
        self.assertEqual(process.returncode, code, f"acc-ctl {words}: {out}{err}")
        return out, err

    def ps(self):
        """Without plain jobs of other tests, which may be listed from the places that all programs of a user know."""
        return [j for j in json.loads(self.ctl("ps", "--json")[0])["jobs"]
                if j["source"] != "acc-launch" or os.path.exists(f"{self.runtime}/acc/jobs/{j['id']}.sock")]


class Words(CtlTest):
    def test_help_version_and_completions(self):
        self.assertIn("usage: acc-ctl", self.ctl("--help")[0])
        self.assertIn("usage: acc-ctl stop", self.ctl("stop", "--help")[0])
        self.assertTrue(self.ctl("--version")[0].startswith("acc-ctl "))
        for shell in ("bash", "zsh", "fish"):
            text = self.ctl("--completion", shell)[0]
            if shutil.which(shell):
                subprocess.run([shell, "-n"], input=text, text=True, check=True)

    def test_bash_completes_verbs_and_flags(self):
        script = self.ctl("--completion", "bash")[0] + (
            '\nCOMP_WORDS=(acc-ctl st); COMP_CWORD=1; _acc_ctl 2>/dev/null; echo "${COMPREPLY[@]}"'
            '\nCOMP_WORDS=(acc-ctl logs --f); COMP_CWORD=2; _acc_ctl 2>/dev/null; echo "${COMPREPLY[@]}"'
            '\nCOMP_WORDS=(acc-top --n); COMP_CWORD=1; _acc_ctl 2>/dev/null; echo "${COMPREPLY[@]}"\n')
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "status stop stacks\n--follow\n--node\n")

    def test_usage_is_exit_code_2(self):
        for words in (["statsu"], ["stop"], ["stop", "--grace", "x", "a"], ["logs", "-f", "--rank", "-1", "x"], ["submit"],
                      ["signal", "NONSENSE", "x"]):
            self.ctl(*words, code=2)

    def test_without_a_service_it_is_exit_code_4(self):
        self.assertRegex(self.ctl("node", code=4)[1], r"no acc-agent answers \(.*\): 'systemctl start acc-agent' starts it")
        if not os.path.exists("/run/acc/agent.sock"):
            self.assertIn("'systemctl start acc-agent' starts it", self.ctl("status", "train-k3jd82", code=3)[1])
        self.ctl("submit", "--", "--num_processes", "1", "--no_python", "true", code=4)
        self.assertIn("is that the socket of one that runs", self.ctl("--socket", "/nonexistent/agent.sock", "ps", code=4)[1])
        self.assertEqual(self.ps(), [])

    def test_a_stopped_service_is_named_with_its_pid(self):
        """SIGSTOP: the kernel still takes connections for it."""
        path = os.path.join(self.runtime, "stopped.sock")
        with socket.socket(socket.AF_UNIX) as stopped:
            stopped.bind(path)
            stopped.listen()
            self.assertRegex(self.ctl("--socket", path, "ps", code=4)[1],
                             rf"takes connections, but gives no answer: its acc-agent \(pid {os.getpid()}\) is stopped \(kill -CONT {os.getpid()}\) or stuck")
            self.environment["ACC_AGENT_SOCKET"] = path
            started = subprocess.run([ACC, "--hosts", "node7:1", "--no_python", "true"], env=self.environment, cwd=self.runtime, text=True,
                                     stdin=subprocess.DEVNULL, capture_output=True, timeout=60 * SLACK)
            self.assertIn("it takes connections, but gives no answer", started.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_root_after_su_submits_nothing_to_an_agent_of_the_folders_user(self):
        folder = os.path.join(self.runtime, "acc")
        os.mkdir(folder)
        os.chown(self.runtime, 1001, 1001)
        with socket.socket(socket.AF_UNIX) as foreign:
            foreign.bind(os.path.join(folder, "agent.sock"))
            foreign.listen()
            foreign.setblocking(False)
            self.popen("submit", "--", "--num_processes", "1", "--no_python", "true").communicate(timeout=30 * PATIENCE)
            self.popen("node").communicate(timeout=30 * PATIENCE)
            self.assertRaises(BlockingIOError, foreign.accept)
            process = self.popen("--socket", os.path.join(folder, "agent.sock"), "node")
            until(lambda: select.select([foreign], [], [], 0.1)[0], "a connection to the agent that was named")
            process.kill()
            process.communicate()


class Plain(CtlTest):
    """Jobs of acc-launch without a service."""

    def start(self, flags, words, workers=1, **options):
        job = self.job(flags, words, env={"XDG_RUNTIME_DIR": self.runtime}, **options)
        job.wait_events("up", workers)
        # A worker marks itself before its agent has seen all of them start: the job is "waiting" until then.
        until(lambda: any(j["id"] == f"fake_worker.{job.pid}" and j["state"] == "running" for j in self.ps()), "the running job in the list")
        return job

    def test_a_job_is_listed_shown_signalled_restarted_and_stopped(self):
        job = self.start("--num_processes 2", "note=USR1 mark=up hold hold", workers=2)
        listed = self.ps()
        self.assertEqual([(j["id"], j["name"], j["state"], j["exit_code"], j["slots"], j["source"]) for j in listed],
                         [(f"fake_worker.{job.pid}", "fake_worker", "running", None, 2, "acc-launch")])
        self.assertAlmostEqual(listed[0]["started_ms"] / 1000, time.time(), delta=60)
        table = self.ctl("ps")[0]
        self.assertRegex(table, rf"(?m)^fake_worker\.{job.pid} +running +\S+ +2 ")
        self.assertTrue(all(len(line) <= 80 for line in table.splitlines()), table)
        for name in (f"fake_worker.{job.pid}", "fake_worker", "fake"):
            self.assertIn(f"fake_worker.{job.pid}: running", self.ctl("status", name)[0])
        status = json.loads(self.ctl("status", "--json", "fake_worker")[0])
        self.assertEqual(len(status["live"]["workers"]), 2)
        self.ctl("signal", "usr1", "fake_worker")
        job.wait_events("got_SIGUSR1", 2)
        self.ctl("signal", "KILL", "fake_worker", code=2)
        self.ctl("restart", "fake_worker")
        job.wait_events("up", 4)
        self.ctl("stop", "--grace", "0", "fake_worker")
        self.assertEqual(job.wait(5), 143)
        if not os.path.exists("/run/acc/agent.sock"):  # else the service that knows it may not answer
            self.assertNotIn("agent.sock", self.ctl("status", "fake_worker", code=3)[1])

    def test_a_job_without_xdg_runtime_dir_is_not_denied(self):
        """Docker, su and cron: the variable is missing for the job, for acc-ctl, or for both."""
        job = self.job("--num_processes 1", "mark=up hold", env={"XDG_RUNTIME_DIR": None})
        job.wait_events("up", 1)
        name = f"fake_worker.{job.pid}"
        with_it, without_it = self.environment, {k: v for k, v in self.environment.items() if k != "XDG_RUNTIME_DIR"}
        for environment in (without_it, with_it):
            self.environment = environment
            until(lambda: name in self.ctl("ps")[0], "the job in the list")
            until(lambda: f"{name}: running" in self.ctl("status", name)[0], "the running job")
        self.environment = without_it
        self.ctl("stop", "--grace", "0", name)
        self.assertEqual(job.wait(5), 143)
        self.assertNotIn(name, self.ctl("ps")[0])

    def test_a_missing_variable_is_named_when_nothing_is_found(self):
        """The job has a folder of its own, and this shell doesn't know it."""
        job = self.start("--num_processes 1", "mark=up hold")
        name = f"fake_worker.{job.pid}"
        del self.environment["XDG_RUNTIME_DIR"]
        out, err = self.ctl("ps")
        self.assertNotIn(name, out)
        if not out.splitlines()[1:]:
            self.assertIn("XDG_RUNTIME_DIR isn't set here", err)
        process = self.popen("status", name)
        self.assertIn("XDG_RUNTIME_DIR isn't set here", process.communicate(timeout=30 * PATIENCE)[1])

    def test_its_logs_are_where_it_was_started(self):
        job = self.start("--num_processes 2 --log_dir logs --redirects 3", "mark=up hold", workers=2)
        self.assertIn(f"{os.path.realpath(job.folder)}/logs/", self.ctl("logs", "fake", code=5)[1])
        self.assertIn(f"{os.path.realpath(job.folder)}/logs/", self.ctl("status", "fake")[0])

    def test_several_jobs_of_one_prefix_are_named(self):
        jobs = [self.start("--num_processes 1", "mark=up hold") for _ in range(2)]
        until(lambda: len(self.ps()) == 2, "both jobs")
        for word in ("fake", "fake_worker"):
            err = self.ctl("stop", word, code=2)[1]
            for job in jobs:
                self.assertIn(f"fake_worker.{job.pid}", err)

    def test_a_prefix_that_a_launch_on_several_hosts_shares_with_a_job_named_the_launch(self):
        job = self.start("--num_processes 1", "mark=up hold")
        folder = os.path.join(self.runtime, ".local/state/acc/launches")
        os.makedirs(folder)
        self.environment.pop("XDG_STATE_HOME", None)
        with open(os.path.join(folder, "fabric-ab12cd34.json"), "w") as file:  # its daemon gives no answer, so that it may run
            json.dump({"id": "fabric-ab12cd34", "socket": "/nonexistent/agent.sock", "folder": "/", "started_ms": 1, "detached": True,
                       "node": "node7", "min_hosts": 1, "parts": [{"host": "node7", "node": "", "job": "fabric-ab12cd34.0-x"}]}, file)
        for verb in ("stop", "status", "top"):
            said = self.ctl(verb, "fa", code=2)[1]
            self.assertIn("'fa' may mean several jobs: ", said)
            self.assertIn(f"fake_worker.{job.pid}", said)
            self.assertIn("fabric-ab12cd34", said)
        self.assertIn(f"fake_worker.{job.pid}", self.ctl("status", "fak")[0])
        self.assertTrue(job.alive())

    def test_a_suspended_job_is_listed_and_holds_up_nobody(self):
        job = self.start("--num_processes 1", "mark=up hold")
        os.kill(job.agent, signal.SIGSTOP)
        try:
            begin = time.monotonic()
            self.assertEqual([(j["id"], j["state"]) for j in self.ps()], [(f"fake_worker.{job.pid}", "running")])
            self.assertLess(time.monotonic() - begin, 15 * SLACK)
            self.assertIn("suspended?", self.ctl("ps")[0])
            self.assertIn("may be suspended", self.ctl("status", "fake_worker", code=4)[1])
            self.assertIn("may still carry this out", self.ctl("restart", "fake_worker", code=4)[1])
        finally:
            os.kill(job.agent, signal.SIGCONT)

    def test_restarts_that_were_asked_for_are_told_apart(self):
        job = self.start("--num_processes 2 --max_restarts 1 --report report.json", "mark=up hold", workers=2)
        self.ctl("restart", "fake_worker")
        job.wait_events("up", 4)
        self.assertIn("restarts 0 of 1 (1 in all)", self.ctl("status", "fake_worker")[0])
        self.ctl("stop", "--grace", "0", "fake_worker")
        self.assertEqual(job.wait(5), 143)
        report = self.report(job)
        self.assertEqual((report["restarts"], report["restarts_used"], report["max_restarts"]), (1, 0, 1))

    def test_the_socket_of_a_killed_agent_is_ignored_and_removed(self):
        job = self.start("--num_processes 1", "mark=up hold")
        folder = os.path.join(self.runtime, "acc/jobs")
        os.kill(job.agent, signal.SIGKILL)
        self.assertEqual(job.wait(), 70)
        self.assertEqual(len(os.listdir(folder)), 1)
        self.assertEqual(self.ps(), [])
        self.assertEqual(os.listdir(folder), [])


class Service(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Plays acc-agent: each test says what it answers."""
    daemon_threads = True

    def __init__(self, path):
        self.replies, self.requests = {}, []
        super().__init__(path, ServiceHandler)


class ServiceHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass

    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the client may leave as soon as it knows enough
            self.answer(body)

    def answer(self, body):
        self.server.requests.append((self.command, self.path, body, self.headers.get("Last-Event-ID")))
        reply = self.server.replies.get((self.command, self.path.split("?")[0]), (404, {"error": "there is no such job", "code": "not_found"}))
        if callable(reply):
            return reply(self)
        return self.reply(*reply)

    def reply(self, code, value):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = serve

    def stream(self, *events):
        """Events as bytes, in chunks; without an end where the last one is None."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in events:
            if event is None:
                self.close_connection = True
                return
            data = event.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


def event(name, data, at="1,0"):
    return f"id: {at}\nevent: {name}\ndata: {json.dumps(data)}\n\n"


JOB = {"id": "train-k3jd82", "name": "train", "user": "nobody", "state": "running", "exit_code": None, "reason": "", "submitted_ms": 1,
       "started_ms": 1, "ended_ms": 0, "pid": 5, "starts": 1, "slots": 4, "gpus": [], "words": ["train.py", "\x1b[2J"], "working_directory": "/"}


class Played(CtlTest):
    def setUp(self):
        super().setUp()
        os.makedirs(self.runtime + "/acc")
        self.path = self.runtime + "/acc/agent.sock"
        self.serve()
        self.service.replies["GET", "/v1/jobs"] = (200, {"jobs": [JOB]})

    def serve(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.service = Service(self.path)
        threading.Thread(target=self.service.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.addCleanup(self.service.server_close)
        self.addCleanup(self.service.shutdown)

    def answers_one_by_one(self, request, *streams):
        """The first connection gets the first of them, and so on. Who is asked changes the answer: we may be later than the next connection."""
        left = list(streams)
        self.service.replies[request] = lambda h: h.stream(*left.pop(0))

    def test_ps_fits_80_columns_and_nothing_foreign_steers_the_terminal(self):
        self.service.replies["GET", "/v1/jobs"] = (200, {"jobs": [{**JOB, "words": ["x" * 500, "\x1b[2J"]}]})
        out = self.ctl("ps")[0]
        self.assertTrue(all(len(line) <= 80 for line in out.splitlines()), out)
        self.service.replies["GET", "/v1/jobs"] = (200, {"jobs": [JOB]})
        self.assertNotIn("\x1b", self.ctl("ps")[0])
        self.assertEqual(self.ps()[0]["words"], JOB["words"])
        self.assertEqual(self.ps()[0]["state"], "running")

    def test_json_held_bytes_that_steer_a_terminal(self):
        """The service's own JSON, and that of a service that isn't ours: as escapes, which mean the same."""
        evil = {**JOB, "words": ["\x1b[2J", "a\x7f\x9b31m", "\u202e", "\U000e0041", "größe"]}
        body = json.dumps(evil, ensure_ascii=False).encode()
        self.service.replies["GET", "/v1/jobs"] = (200, {"jobs": [evil]})
        self.service.replies["GET", f"/v1/jobs/{JOB['id']}"] = (200, body)
        self.service.replies["GET", "/v1/nodes"] = (200, body)
        self.service.replies["GET", "/v1/node"] = (200, body)
        self.service.replies["POST", "/v1/jobs"] = (201, body)
        for words in (["ps", "--json"], ["status", "--json", "train"], ["nodes", "--json"], ["node", "--json"],
                      ["submit", "--json", "--detach", "--", "--num_processes", "1", "--no_python", "true"]):
            out = self.ctl(*words)[0]
            self.assertTrue(all(c.isprintable() or c == "\n" for c in out), out)
            told = json.loads(out)
            self.assertEqual((told["jobs"][0] if "jobs" in told else told)["words"], evil["words"])
            self.assertIn("größe", out)

    def test_what_a_full_disk_did_not_take_was_a_success(self):
        for words in (["ps"], ["ps", "--json"]):
            with open("/dev/full", "w") as full:
                self.assertIn("can't write to the standard output: No space left on device", self.ctl(*words, code=1, stdout=full)[1])

    def test_in_a_job_the_socket_of_its_worker_was_taken_for_the_service(self):
        self.environment["ACC_AGENT_SOCKET"] = "@acc-launch/worker/1-nobody"
        self.assertEqual(self.ps()[0]["id"], JOB["id"])

    def test_what_the_service_refuses_has_its_own_exit_code(self):
        for status, code in ((404, 3), (409, 5), (403, 5), (429, 5), (503, 5), (400, 2), (500, 1)):
            self.service.replies["POST", f"/v1/jobs/{JOB['id']}/stop"] = (status, {"error": f"no \x1b {status}", "code": "x"})
            err = self.ctl("stop", "train", code=code)[1]
            self.assertIn(f"{status}", err)
            self.assertNotIn("\x1b", err)
        self.ctl("stop", "other", code=3)

    def test_a_node_that_gives_no_answer_was_a_refusal_in_one_command_and_a_failure_in_another(self):
        for status, code, exit in ((504, "no_answer", 4), (502, "no_daemon", 4), (503, "busy", 4), (502, "authentication_failed", 5), (502, "wrong_node", 5)):
            for path in ("/v1/jobs", "/v1/node"):
                self.service.replies["GET", "/v1/nodes/b" + path] = (status, {"error": f"b: {code}", "code": code})
            for words in (["ps"], ["status", "train"], ["node"]):
                self.assertIn(f"b: {code}", self.ctl("--node", "b", *words, code=exit)[1])

    def test_ps_said_no_jobs_where_acc_agent_refused_to_list_them(self):
        self.service.replies["GET", "/v1/jobs"] = (503, {"error": "too many connections: close some", "code": "unavailable"})
        out, err = self.ctl("ps", code=5)
        self.assertEqual(err, "acc-ctl: too many connections: close some\n")
        self.assertNotIn("no job", out)
        out, err = self.ctl("ps", "--json", code=5)
        self.assertEqual(err, "acc-ctl: too many connections: close some\n")
        self.assertIn("jobs", json.loads(out))

    def test_ps_said_no_jobs_where_acc_agent_was_stopped(self):
        os.unlink(self.path)
        with socket.socket(socket.AF_UNIX) as stopped:
            stopped.bind(self.path)
            stopped.listen()
            job = self.job("--num_processes 1", "mark=up hold", env={"XDG_RUNTIME_DIR": self.runtime})
            job.wait_events("up", 1)
            for words in (["ps"], ["ps", "--json"]):
                out, err = self.ctl(*words, code=4)
                self.assertIn("takes connections, but gives no answer", err)
                self.assertIn(f"fake_worker.{job.pid}", out)  # what is known is listed

    def test_a_job_was_said_to_be_missing_where_acc_agent_refused_to_name_its_jobs(self):
        self.service.replies["GET", "/v1/jobs"] = (503, {"error": "too many connections: close some", "code": "unavailable"})
        for words in (["status", "train"], ["stop", "train"], ["logs", "train"], ["top", "train"]):
            self.assertEqual(self.ctl(*words, code=5)[1], "acc-ctl: too many connections: close some\n")
        job = self.job("--num_processes 1", "mark=up hold", env={"XDG_RUNTIME_DIR": self.runtime})
        job.wait_events("up", 1)  # another one is no reason to think that this one isn't there
        self.assertEqual(self.ctl("status", "train", code=5)[1], "acc-ctl: too many connections: close some\n")

    def test_every_verb_tells_the_refusal_of_acc_agent_and_its_exit_code(self):
        for path in ("/v1/events", "/v1/node", "/v1/nodes"):
            self.service.replies["GET", path] = (503, {"error": "too many connections: close some", "code": "unavailable"})
        for words in (["events"], ["events", "-f"], ["node"], ["node", "--json"], ["nodes"]):
            self.assertEqual(self.ctl(*words, code=5)[1], "acc-ctl: too many connections: close some\n", words)

    def test_requests_are_what_the_api_wants(self):
        base = f"/v1/jobs/{JOB['id']}"
        for path in ("/stop", "/signal", "/restart"):
            self.service.replies["POST", base + path] = (202, b"")
        self.service.replies["DELETE", base] = (204, b"")
        self.service.replies["POST", "/v1/node/drain"] = self.service.replies["POST", "/v1/node/undrain"] = (202, b"{}")
        self.ctl("stop", "--grace", "5", "train")
        self.ctl("signal", "USR1", "train")
        self.ctl("restart", "train")
        self.ctl("rm", "train")
        self.ctl("drain", "--reason", "a fan")
        self.ctl("undrain")
        asked = [(method, path, json.loads(body or "null")) for method, path, body, _ in self.service.requests if method != "GET"]
        self.assertEqual(asked, [("POST", base + "/stop", {"grace_s": 5}), ("POST", base + "/signal", {"signal": "SIGUSR1"}),
                                 ("POST", base + "/restart", None), ("DELETE", base, None),
                                 ("POST", "/v1/node/drain", {"reason": "a fan"}), ("POST", "/v1/node/undrain", None)])

    def test_verbs_that_change_something_take_several_jobs(self):
        jobs = [{**JOB, "id": f"{name}-1", "name": name} for name in "abc"]
        self.service.replies["GET", "/v1/jobs"] = (200, {"jobs": jobs})
        for name in "abc":
            for path in ("/stop", "/signal", "/restart"):
                self.service.replies["POST", f"/v1/jobs/{name}-1{path}"] = (202, b"")
            self.service.replies["DELETE", f"/v1/jobs/{name}-1"] = (204, b"")
        for words, path in ((["stop"], "/stop"), (["signal", "USR1"], "/signal"), (["restart"], "/restart"), (["rm"], "")):
            self.service.requests.clear()
            err = self.ctl(*words, "a", "nobody", "c-1", code=3)[1]  # one that is missing doesn't keep the others
            self.assertIn("there is no job 'nobody'", err)
            self.assertEqual([at for method, at, *_ in self.service.requests if method != "GET"], [f"/v1/jobs/{id}-1{path}" for id in "ac"])
            self.assertEqual(sum(at == "/v1/jobs" for _, at, *_ in self.service.requests), 1)

    def test_ps_shows_the_script_and_not_the_flags(self):
        words = ["--num_processes", "8", "--mixed_precision", "bf16", "train.py", "--lr", "0.1"]
        self.service.replies["GET", "/v1/jobs"] = (200, {"jobs": [{**JOB, "words": words}]})
        self.assertIn("  train.py --lr 0.1\n", self.ctl("ps")[0])
        self.assertEqual(self.ps()[0]["words"], words)

    def test_attach_begins_at_the_end_and_goes_on_from_there(self):
        logs = "GET", f"/v1/jobs/{JOB['id']}/logs"
        self.answers_one_by_one(logs, ["id: 9,3\n\n", None], [event("stdout", "two\n", "13,3"), event("end", {"state": "succeeded", "exit_code": 0})])
        follower = self.popen("attach", "train")
        out, err = follower.communicate(timeout=30 * PATIENCE)
        self.assertEqual((follower.returncode, out), (0, "two\n"), err)
        self.assertTrue(any("from=end" in at for _, at, *_ in self.service.requests), self.service.requests)
        self.assertEqual(self.service.requests[-1][3], "9,3")

    def test_submit_plans_first_and_submits_nothing_that_is_wrong(self):
        self.assertIn("--num_procs", self.ctl("submit", "--", "--num_procs", "2", "a.py", code=2)[1])
        self.assertEqual(self.service.requests, [])

    def test_submit_follows_and_ends_as_the_job_does(self):
        self.service.replies["POST", "/v1/jobs"] = (201, {"id": JOB["id"]})
        self.service.replies["GET", f"/v1/jobs/{JOB['id']}/logs"] = lambda h: h.stream(
            event("stdout", "out ä\n"), event("stderr", "err\n"), event("end", {"state": "failed", "exit_code": 7}))
        out, err = self.ctl("submit", "--slots", "9", "--env", "A=b", "--", "--num_processes", "3", "--no_python", "true", code=7)
        self.assertEqual((out, err), ("out ä\n", "err\n"))
        body = json.loads(self.service.requests[0][2])
        self.assertEqual((body["words"], body["slots"], body["env"], body["name"]),
                         (["--num_processes", "3", "--no_python", "true"], 9, {"A": "b"}, "true"))
        self.assertEqual(os.path.realpath(body["working_directory"]), os.path.realpath(self.runtime))

    def test_submit_takes_its_slots_from_the_plan_and_prints_the_id_alone(self):
        self.service.replies["POST", "/v1/jobs"] = (201, {"id": JOB["id"]})
        out, _ = self.ctl("submit", "--detach", "--", "--num_processes", "3", "--no_python", "true")
        self.assertEqual(out, JOB["id"] + "\n")
        self.assertEqual(json.loads(self.service.requests[0][2])["slots"], 3)

    def test_a_lost_connection_is_made_again_where_it_broke_off(self):
        """The service is restarted under `logs -f`."""
        logs = "GET", f"/v1/jobs/{JOB['id']}/logs"
        self.answers_one_by_one(logs, [event("stdout", "one\n", "4,0"), "id: 9,0\nevent: stdout\ndata: \"ha", None],
                                [event("stdout", "two\n", "8,0"), event("end", {"state": "succeeded", "exit_code": 0})])
        follower = self.popen("logs", "-f", "train")
        out, err = follower.communicate(timeout=30 * PATIENCE)
        self.assertEqual((follower.returncode, out), (0, "one\ntwo\n"), err)
        self.assertIn("trying again", err)
        self.assertEqual(self.service.requests[-1][3], "4,0")

    def test_ctrl_c_asks_the_job_to_stop_and_a_second_one_leaves_it(self):
        held = threading.Event()
        self.addCleanup(held.set)

        def logs(h):
            h.send_response(200)
            h.send_header("Content-Type", "text/event-stream")
            h.end_headers()
            h.wfile.write(event("stdout", "up\n").encode())
            h.wfile.flush()
            held.wait(60)
            h.close_connection = True
        self.service.replies["POST", "/v1/jobs"] = (201, {"id": JOB["id"]})
        self.service.replies["GET", f"/v1/jobs/{JOB['id']}/logs"] = logs
        self.service.replies["POST", f"/v1/jobs/{JOB['id']}/stop"] = (202, b"")
        follower = self.popen("submit", "--", "--num_processes", "1", "--no_python", "true")
        self.addCleanup(follower.kill)
        self.assertEqual(follower.stdout.readline(), "up\n")
        follower.send_signal(signal.SIGINT)
        until(lambda: any(path.endswith("/stop") for _, path, *_ in self.service.requests), "the stop")
        self.assertIn("asked train-k3jd82 to stop", follower.stderr.readline())
        follower.send_signal(signal.SIGINT)
        self.assertEqual(follower.wait(20 * PATIENCE), 130)
        self.assertIn("acc-ctl attach train-k3jd82", follower.stderr.read())
        follower.stdout.close(), follower.stderr.close()

    def interrupted_attach(self, answers):
        """An attached acc-ctl after Ctrl-C, whose log stays open while the stop gets one answer after the other; the last one from then on."""
        held = threading.Event()
        self.addCleanup(held.set)
        left = list(answers)

        def logs(h):
            h.send_response(200)
            h.send_header("Content-Type", "text/event-stream")
            h.end_headers()
            h.wfile.write(event("stdout", "up\n").encode())
            h.wfile.flush()
            held.wait(60)
            h.close_connection = True

        def next_answer():
            status, code = left.pop(0) if len(left) > 1 else left[0]
            return (status, {"error": f"b: {code}", "code": code} if code else b"")
        self.service.replies["GET", f"/v1/jobs/{JOB['id']}/logs"] = logs
        self.service.replies["POST", f"/v1/jobs/{JOB['id']}/stop"] = lambda h: h.reply(*next_answer())
        follower = self.popen("attach", "--all", "train")
        self.addCleanup(follower.communicate)
        self.addCleanup(follower.kill)
        self.assertEqual(follower.stdout.readline(), "up\n")
        follower.send_signal(signal.SIGINT)
        return follower

    def test_a_stop_that_the_jobs_node_did_not_hear_was_never_asked_again_while_the_log_stayed_open(self):
        follower = self.interrupted_attach([(504, "no_answer"), (503, "busy"), (502, "no_daemon"), (202, "")])
        self.assertEqual(follower.stderr.readline(), "acc-ctl: could not ask train-k3jd82 to stop: b: no_answer; it is asked again when acc-agent answers, "
                                                     "Ctrl-C again leaves it alone\n")
        self.assertEqual(follower.stderr.readline(), "acc-ctl: asked train-k3jd82 to stop; Ctrl-C again leaves it alone\n")

    def test_a_stop_that_was_refused_for_good_was_promised_to_be_asked_again(self):
        for status, code in ((503, "no_secret"), (503, "unproven_node"), (502, "wrong_node"), (502, "authentication_failed"), (403, "forbidden")):
            follower = self.interrupted_attach([(status, code)])
            self.assertEqual(follower.stderr.readline(), f"acc-ctl: could not ask train-k3jd82 to stop: b: {code}; Ctrl-C again leaves it alone\n")
            follower.send_signal(signal.SIGINT)
            self.assertEqual(follower.wait(20 * PATIENCE), 130)

    def test_a_stream_that_was_refused_did_not_say_that_the_stop_was_never_asked(self):
        is_asked = threading.Event()
        self.addCleanup(is_asked.set)

        def stop(h):
            h.reply(504, {"error": "b: no answer", "code": "no_answer"})
            is_asked.set()

        def logs(h):
            if is_asked.is_set():
                return h.reply(403, {"error": "you may not", "code": "forbidden"})
            h.stream(event("stdout", "up\n"), None)
            h.wfile.flush()
            is_asked.wait(60)
        self.service.replies["GET", f"/v1/jobs/{JOB['id']}/logs"] = logs
        self.service.replies["POST", f"/v1/jobs/{JOB['id']}/stop"] = stop
        follower = self.popen("attach", "--all", "train")
        self.addCleanup(follower.kill)
        self.assertEqual(follower.stdout.readline(), "up\n")
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=30 * PATIENCE)
        self.assertEqual(follower.returncode, 5, err)
        self.assertIn("you may not; train-k3jd82 was not asked to stop and goes on", err)

    def test_a_socket_that_a_killed_agent_had_left_failed_each_list_though_another_agent_answered(self):
        user = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        self.service.shutdown()
        self.service.server_close()  # nothing listens at it now
        dead = self.path
        os.chmod(dead, 0o777)
        folder = self.runtime + "/.local/state/acc"
        os.makedirs(folder)
        self.environment.pop("XDG_STATE_HOME", None)
        self.path = folder + "/agent.sock"
        self.serve()
        os.chmod(self.path, 0o777)
        for at in (self.runtime, self.runtime + "/acc", folder) if user else ():
            os.chown(at, 65534, 65534)
        self.service.replies["GET", "/v1/jobs"] = (200, {"jobs": [JOB]})
        self.service.replies["GET", "/v1/node"] = (200, {"name": "n1", "version": "1", "slots": 8})
        note = f"acc-ctl: the acc-agent of '{dead}' doesn't run any more: start it again, or remove that socket\n"
        for words in (["ps"], ["ps", "--json"], ["node"], ["node", "--json"]):
            out, err = self.ctl(*words, **user)
            self.assertTrue("train" in out or "n1" in out, out)
            self.assertEqual(err, note)
        self.assertRegex(self.ctl("status", "trian", code=3, **user)[1], "(?s)" + note + ".*there is no job 'trian'")
        self.service.replies["GET", "/v1/jobs"] = self.service.replies["GET", "/v1/node"] = (503, {"error": "too many", "code": "unavailable"})
        for words in (["ps"], ["node"]):
            self.assertIn("too many", self.ctl(*words, code=5, **user)[1])
        self.service.shutdown()
        self.service.server_close()
        for words in (["ps"], ["node"]):
            self.assertIn("no acc-agent answers", self.ctl(*words, code=4, **user)[1])

    def test_a_service_that_says_nonsense_is_an_error_in_words(self):
        for reply in (b"\x00\xff", b"[]", b'{"jobs":' + b"[" * 5000):
            self.service.replies["GET", "/v1/jobs"] = (200, reply)
            self.assertEqual(self.ctl("--socket", self.path, "ps", code=5)[0], "")

    def test_a_log_larger_than_memory_wants_passes_through(self):
        text = b"0123456789abcdef" * 65536 * 8  # 8 MiB
        self.service.replies["GET", f"/v1/jobs/{JOB['id']}/logs"] = (200, text)
        out, _ = self.ctl("logs", "--stdout", "train")
        self.assertEqual(len(out), len(text))

    def test_events_and_node_are_shown(self):
        self.service.replies["GET", "/v1/events"] = (200, {"events": [{"id": 1, "time_ms": 0, "job": "a-1", "kind": "started", "text": "\x1bx"}]})
        self.service.replies["GET", "/v1/node"] = (200, {"name": "n1", "version": "1", "slots": 8, "slots_free": 3, "gpus": [0, 1], "gpus_free": [1],
                                                        "drained": "", "jobs_running": 2, "jobs_waiting": 0})
        self.assertIn("a-1  started  \\x1bx", self.ctl("events")[0])
        self.assertRegex(self.ctl("node")[0], r"(?m)^n1 +8 +3 +2 +1 +2 +0 +1$")
        self.assertRegex(self.ctl("node", "--node", "n2", code=3)[1], "no such job")  # asked for by its path
        self.service.replies["GET", "/v1/nodes"] = (200, {"nodes": [{"node": "n1", "ok": True, "facts": {"name": "n1", "version": "1", "slots": 8, "slots_free": 3}},
                                                                    {"node": "n2", "ok": False, "code": "no_daemon", "error": "n2: \x1bx"}]})
        out, err = self.ctl("nodes")
        self.assertRegex(out, r"(?m)^n1 +8 +3 +0")
        self.assertRegex(out, r"(?m)^n2 .*no_daemon")
        self.assertEqual(err, "acc-ctl: n2: \\x1bx\n")
        self.assertEqual(json.loads(self.ctl("nodes", "--json")[0])["nodes"][0]["facts"]["slots"], 8)


@unittest.skipUnless(os.path.exists(AGENT), "acc-agent isn't built")
class OwnDaemon(CtlTest):
    """A user's own acc-agent without XDG_RUNTIME_DIR: su, cron, a container."""

    def setUp(self):
        super().setUp()
        if os.geteuid() == 0:  # root's has another place
            os.chown(self.runtime, 65534, 65534)
            self.as_user = {"user": 65534, "group": 65534, "extra_groups": []}
        else:
            self.as_user = {}
        del self.environment["XDG_RUNTIME_DIR"]
        self.environment.pop("XDG_STATE_HOME", None)
        self.environment["PATH"] = os.path.dirname(ACC) + ":" + self.environment["PATH"]
        self.path = self.runtime + "/.local/state/acc/agent.sock"

    def test_the_daemon_was_not_found_where_it_had_made_its_socket(self):
        with open(self.runtime + "/log", "wb") as log:
            agent = subprocess.Popen([shutil.copy(AGENT, PROGRAMS.name), "--launch", ACC], env=self.environment, cwd=self.runtime,
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self.as_user)
        self.addCleanup(lambda: (agent.terminate(), agent.wait(20 * PATIENCE)))

        def answers():
            self.assertIsNone(agent.poll(), "acc-agent ended: " + read(self.runtime + "/log"))
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as s:
                s.connect(self.path)
                return True
        until(answers, "acc-agent")
        self.assertIn("SLOTS", self.ctl("node", **self.as_user)[0])
        self.environment["XDG_RUNTIME_DIR"] = self.runtime + "/none"  # of a login, later
        self.assertIn("SLOTS", self.ctl("node", **self.as_user)[0])
        os.chmod(os.path.dirname(self.path), 0o777)
        self.ctl("node", code=4, **self.as_user)

    def test_a_socket_in_a_shared_home_made_each_node_one_whose_acc_agent_is_down(self):
        subprocess.run(["mkdir", "-p", os.path.dirname(self.path)], check=True, **self.as_user)
        subprocess.run(["python3", "-c", "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])", self.path], check=True, **self.as_user)
        self.assertIn("no acc-agent answers here, so that only jobs of acc-launch are known", self.ctl("status", "nosuch", code=3, **self.as_user)[1])
        self.ctl("--socket", self.path, "status", "nosuch", code=4, **self.as_user)  # it was named
        self.environment["XDG_RUNTIME_DIR"] = os.path.dirname(self.path) + "/run"
        os.makedirs(self.environment["XDG_RUNTIME_DIR"] + "/acc")
        if self.as_user:
            os.chown(self.environment["XDG_RUNTIME_DIR"] + "/acc", 65534, 65534)
            os.chown(self.environment["XDG_RUNTIME_DIR"], 65534, 65534)
        os.rename(self.path, self.environment["XDG_RUNTIME_DIR"] + "/acc/agent.sock")  # of this node alone
        self.ctl("status", "nosuch", code=4, **self.as_user)


@unittest.skipUnless(os.path.exists(AGENT), "acc-agent isn't built")
class Real(CtlTest):
    """acc-agent itself, as root or as this user."""

    def setUp(self):
        super().setUp()
        self.make_service()

    def make_service(self):
        self.state = tempfile.mkdtemp(prefix="acc-state-")
        self.addCleanup(shutil.rmtree, self.state, ignore_errors=True)
        self.environment["ACC_AGENT_SOCKET"] = self.state + "/agent.sock"
        self.environment["PATH"] = BIN + ":" + self.environment["PATH"]
        self.log = os.path.join(self.runtime, "acc-agent.log")
        self.begin()
        self.addCleanup(self.end)

    def begin(self):
        with open(self.log, "ab") as log:
            self.agent = subprocess.Popen([AGENT, "--state-dir", self.state], env=self.environment, stdin=subprocess.DEVNULL,
                                          stdout=log, stderr=log)

        def answers():
            self.assertIsNone(self.agent.poll(), "acc-agent ended: " + read(self.log))
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as s:
                s.connect(self.state + "/agent.sock")
                return True
        until(answers, "acc-agent")

    def end(self):
        for job in self.ps() if self.agent.poll() is None else []:
            if job["state"] in ("running", "stopping", "waiting"):
                self.popen("stop", "--grace", "0", job["id"]).communicate()
        with contextlib.suppress(AssertionError):
            until(lambda: all(j["state"] not in ("running", "stopping") for j in self.ps()), "the jobs' end")
        self.agent.terminate()
        self.agent.wait(20 * PATIENCE)

    def submit(self, *words, flags=()):
        return self.ctl("submit", "--detach", *flags, "--", "--num_processes", "1", "--no_python", *words)[0].strip()

    def state_is(self, job, *states):
        return until(lambda: next((j for j in self.ps() if j["id"] == job and j["state"] in states), None), f"{job} to be {states}")

    def test_submit_follows_the_output_and_ends_with_the_jobs_code(self):
        out, err = self.ctl("submit", "--name", "hello", "--", "--num_processes", "1", "--no_python", "sh", "-c", "echo out; echo err >&2; exit 3",
                            code=3)
        self.assertIn("out\n", out)
        self.assertIn("err\n", err)
        job = self.ps()[0]
        self.assertEqual((job["name"], job["state"], job["exit_code"]), ("hello", "failed", 3))
        self.assertIn("failed, exit code 3", self.ctl("status", "hello")[0])
        self.assertRegex(self.ctl("status", "hello")[0], r"\nrank 0 on \S+ exited with code 3\n")
        self.assertTrue(self.ctl("logs", "--stdout", "hello")[0].endswith("out\n"))
        self.ctl("rm", "hello")
        self.ctl("status", "hello", code=3)

    def test_what_a_full_disk_did_not_take_of_a_job_was_a_success(self):
        job = ("--", "--num_processes", "1", "--no_python", "echo", "x")
        for words in (["submit", *job], ["submit", "--detach", *job], ["attach", "--all", "full"]):
            if words[0] == "attach":
                self.ctl("submit", "--name", "full", *job)
            with open("/dev/full", "w") as full:
                self.assertIn("can't write to the standard output: No space left on device", self.ctl(*words, code=1, stdout=full)[1])
            until(lambda: all(j["state"] == "succeeded" for j in self.ps()), "the slots of the jobs that nobody follows any more")

    def test_bytes_that_are_not_utf8_came_changed(self):
        data = b"gr\xc3\xb6\xc3\x9fe\n" + bytes(range(256)) + b"\n" + b"\x01\xe9t\xe9\ngood\n" + b"".join(bytes([b, b, 10]) for b in range(255, -1, -1))
        with open(f"{self.runtime}/data", "wb") as file:
            file.write(data)
        for words in (["submit", "--name", "bytes", "--", "--num_processes", "1", "--no_python", "cat", f"{self.runtime}/data"],
                      ["attach", "--all", "bytes"], ["logs", "--follow", "bytes"], ["logs", "bytes"]):
            with open(f"{self.runtime}/got", "w+b") as got:
                self.ctl(*words, stdout=got)
                got.seek(0)
                self.assertIn(data, got.read().replace(b"[default0]:", b""), words)

    def test_a_running_job_is_shown_restarted_and_stopped(self):
        job = self.submit("sleep", "100")
        self.state_is(job, "running")

        def workers():
            status = json.loads(self.ctl("status", "--json", job)[0])
            return [w["pid"] for w in (status.get("live") or {}).get("workers", []) if w["state"] == "running"]
        first = until(workers, "the worker in the status")
        self.assertIn("RANK", self.ctl("status", job)[0])
        self.ctl("restart", job)
        until(lambda: workers() and workers() != first, "the worker of the next round")
        self.ctl("rm", job, code=5)
        self.ctl("stop", "--grace", "5", job)
        self.assertEqual(self.state_is(job, "stopped")["exit_code"], 143)

    def test_the_logs_of_a_rank_that_there_is_not_were_followed_to_a_good_end(self):
        job = self.submit("sleep", "100")
        until(lambda: (json.loads(self.ctl("status", "--json", job)[0]).get("live") or {}).get("workers"), "the worker in the status")
        for words in (["logs", "-f"], ["logs"], ["attach"]):
            self.assertIn(f"{job} has no rank 9: it has rank 0 alone", self.ctl(*words, "--rank", "9", job, code=3)[1])
        self.ctl("stop", "--grace", "5", job)
        self.state_is(job, "stopped")
        self.assertIn("has no rank 9", self.ctl("logs", "-f", "--rank", "9", job, code=3)[1])
        self.ctl("logs", "-f", "--rank", "0", job)

    def test_logs_are_followed_over_a_restart_of_the_service(self):
        job = self.submit("sh", "-c", f"echo one; while [ ! -e {self.runtime}/go ]; do sleep 0.05; done; echo two")
        follower = self.popen("logs", "-f", "--stdout", job)
        self.addCleanup(follower.kill)
        self.assertTrue(follower.stdout.readline().endswith("one\n"))
        self.agent.send_signal(signal.SIGKILL)
        self.agent.wait()
        self.begin()
        open(self.runtime + "/go", "w").close()
        out, err = follower.communicate(timeout=30 * PATIENCE)
        self.assertEqual((follower.returncode, out.count("\n"), out.endswith("two\n")), (0, 1, True), out + err)

    def test_attach_ends_with_the_jobs_code_and_ctrl_c_stops_it(self):
        job = self.submit("sh", "-c", "echo up; sleep 100")
        follower = self.popen("attach", "--all", job)
        self.addCleanup(follower.kill)
        self.assertTrue(follower.stdout.readline().endswith("up\n"))
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=30 * PATIENCE)
        self.assertEqual(follower.returncode, 143, err)

    def test_a_loop_of_the_shell_went_on_with_the_next_job_after_ctrl_c(self):
        submits = f"{CTL} submit -- --num_processes 1 --no_python sh -c 'echo up-$0; sleep 100' $i"
        follows = f"{CTL} logs -f $(cat job)"
        for loop, presses in ((submits, ("asked ",)), (submits, ("asked ", "left ")), (follows, ())):
            with self.subTest(loop=loop, presses=presses):
                if loop == follows:
                    with open(self.runtime + "/job", "w") as file:
                        file.write(self.submit("sh", "-c", "echo up-1; sleep 100"))
                master, slave = os.openpty()
                shell = subprocess.Popen(["setsid", "-c", "bash", "-c", f"for i in 1 2; do {loop}; echo went-on $?; done"], env=self.environment,
                                         cwd=self.runtime, stdin=slave, stdout=slave, stderr=slave)
                self.addCleanup(shell.kill)
                os.close(slave)
                text = b""
                with open(master, "r+b", buffering=0) as terminal:
                    def arrives(word):
                        nonlocal text
                        while word not in text:
                            self.assertTrue(select.select([terminal], [], [], 20 * PATIENCE)[0], text)
                            text += terminal.read(4096)
                    arrives(b"up-1")
                    for i in range(max(1, len(presses))):
                        terminal.write(b"\x03")
                        if i < len(presses):
                            arrives(presses[i].encode())
                    self.assertEqual(shell.wait(20 * PATIENCE), -signal.SIGINT, text)
                    with contextlib.suppress(OSError):  # all that had the terminal open have ended
                        while select.select([terminal], [], [], 0)[0]:
                            text += terminal.read(4096)
                self.assertNotIn(b"went-on", text)
                self.assertNotIn(b"up-2", text)

    def test_ctrl_c_while_the_service_was_restarted_was_forgotten(self):
        job = self.submit("sh", "-c", "echo up; sleep 100")
        follower = self.popen("attach", "--all", job)
        self.addCleanup(follower.kill)
        self.assertTrue(follower.stdout.readline().endswith("up\n"))
        self.agent.send_signal(signal.SIGKILL)
        self.agent.wait()
        while "trying again for a minute" not in (line := follower.stderr.readline()):
            self.assertTrue(line)
        follower.send_signal(signal.SIGINT)
        self.assertIn("; it is asked again when acc-agent answers, Ctrl-C again leaves it alone", follower.stderr.readline())
        self.begin()
        out, err = follower.communicate(timeout=30 * PATIENCE)
        self.assertIn(f"acc-ctl: asked {job} to stop", err)
        self.assertEqual(follower.returncode, 143, err)

    def test_a_submission_that_was_stopped_in_the_queue_ended_as_if_its_job_had_failed(self):
        slots = json.loads(self.ctl("node", "--json")[0])["slots"]
        blocker = self.submit("sleep", "100", flags=("--slots", str(slots)))
        for signo in (signal.SIGINT, signal.SIGTERM):
            queued = self.popen("submit", "--wait", "--", "--num_processes", "1", "--no_python", "true")
            self.addCleanup(queued.kill)
            until(lambda: any(j["state"] == "waiting" for j in self.ps()), "the queued job")
            queued.send_signal(signo)
            out, err = queued.communicate(timeout=30 * PATIENCE)
            self.assertEqual(queued.returncode, 128 + signo, err)
        self.ctl("stop", blocker)

    def test_the_end_of_the_session_of_an_attach_stopped_the_job(self):
        job = self.submit("sh", "-c", "echo up; sleep 100")
        follower = self.popen("attach", "--all", job)
        self.addCleanup(follower.kill)
        self.assertTrue(follower.stdout.readline().endswith("up\n"))
        follower.send_signal(signal.SIGTERM)
        out, err = follower.communicate(timeout=30 * PATIENCE)
        self.assertEqual(follower.returncode, 143, err)
        self.assertTrue(err.endswith(f"acc-ctl: left {job} alone: acc-ctl attach {job}\n"), err)
        self.assertIn('"running"', self.ctl("status", "--json", job)[0])
        self.ctl("stop", job)

    def test_a_drained_node_refuses_and_says_why(self):
        self.ctl("drain", "--reason", "a fan is broken, and nobody has mended it so far: see the ticket")
        self.assertIn("a fan is broken", self.ctl("submit", "--", "--num_processes", "1", "--no_python", "true", code=5)[1])
        table = self.ctl("node")[0]
        self.assertIn(" is drained: a fan is broken, and nobody has mended it so far: see the ticket\n", table)  # it was cut
        self.ctl("undrain")
        self.ctl("submit", "--", "--num_processes", "1", "--no_python", "true")
        self.assertIn("drained", self.ctl("events")[0])


if __name__ == "__main__":
    hide_other_jobs()
    main()
