"""The control socket of a plain acc-launch: what it tells, what it does, whom it hears."""
import contextlib, json, os, shutil, signal, socket, subprocess, tempfile, time, unittest

from harness import NOBODY, PATIENCE, SLACK, JobTest, free_port, is_root, main, own_token, state_of, until


def ask_at(path, request, timeout=10.0):
    """The reply to one request; None if the connection is closed without one."""
    folder, name = os.path.split(path)
    at = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(timeout * PATIENCE)
            s.connect(f"/proc/self/fd/{at}/{name}")
            s.sendall((request if isinstance(request, str) else json.dumps(request)).encode() + b"\n")
            with s.makefile() as f:
                text = f.read()
    finally:
        os.close(at)
    return json.loads(text) if text else None


class ControlTest(JobTest):
    def setUp(self):
        self.runtime = tempfile.mkdtemp(prefix="acc-runtime-")
        os.chmod(self.runtime, 0o700)
        self.addCleanup(shutil.rmtree, self.runtime, ignore_errors=True)

    def sockets(self, runtime=None):
        folder = os.path.join(runtime or self.runtime, "acc/jobs")
        if not os.path.isdir(folder):
            return []
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if not name.startswith(".")]  # .new-…: not listening yet

    def start(self, flags, words, workers=1, **options):
        env = {"XDG_RUNTIME_DIR": self.runtime, **options.pop("env", {})}
        job = self.job(flags, words, env=env, **options)
        job.wait_events("up", workers)
        return job

    def ask(self, request):
        path = until(self.sockets, "the control socket")[0]
        return ask_at(path, request)

    def running(self, path=None):
        """The status of a job that runs: a worker marks itself before its agent has seen all of them start."""
        def seen():
            status = ask_at(path, {"do": "status"}) if path else self.ask({"do": "status"})
            return status if status["state"] == "running" and all(worker["state"] == "running" for worker in status["workers"]) else None
        return until(seen, "the running job")


class Status(ControlTest):
    def test_it_tells_of_every_worker_and_of_the_job(self):
        job = self.start("--num_processes 2 --max_restarts 3", "mark=up hold", workers=2)
        pids = {int(rank): pid for _, rank, _, pid in job.events("up")}
        until(self.sockets, "the control socket")
        self.assertEqual(os.path.basename(self.sockets()[0]), f"fake_worker.{job.pid}.sock")
        status = self.running()
        self.assertEqual((status["job"], status["state"], status["round"]), ("fake_worker", "running", 0))
        self.assertEqual((status["world_size"], status["max_restarts"], status["restarts_used"]), (2, 3, 0))
        self.assertEqual((status["guardian_pid"], status["agent_pid"]), (job.pid, job.agent))
        self.assertIsNone(status["log_folder"])
        self.assertEqual({w["rank"]: w["pid"] for w in status["workers"]}, pids)
        for worker in status["workers"]:
            self.assertEqual(worker["state"], "running")
            self.assertGreater(worker["rss_bytes"], 50_000)
            self.assertGreaterEqual(worker["cpu_s"], 0)
            self.assertGreater(worker["seconds"], 0)

    def test_the_log_folder_is_named_where_there_is_one(self):
        self.start("--num_processes 1 --log_dir logs --redirects 3", "mark=up hold")
        self.assertIn("logs/", self.ask({"do": "status"})["log_folder"])

    def test_a_failed_job_that_waits_is_restarting(self):
        job = self.start("--num_processes 1 --max_restarts 5 --restart_delay 30s", "mark=up exit=1")
        job.wait_events("up", 2)

        def waits():
            seen = self.ask({"do": "status"})
            return seen if seen["state"] == "restarting" and seen["restarts_used"] == 2 else None
        status = until(waits, "the wait for the second restart")
        self.assertEqual(status["workers"][0]["exit_code"], 1)
        self.assertEqual(self.ask({"do": "restart"}), {"ok": True})
        job.wait_events("up", 3)

    def test_the_socket_is_gone_with_the_job(self):
        job = self.start("--num_processes 1", "mark=up hold")
        until(self.sockets, "the control socket")
        job.process.terminate()
        self.assertEqual(job.wait(), 143)
        self.assertEqual(self.sockets(), [])

    def test_a_logout_hid_the_jobs_that_ran_on(self):
        job = self.start("--num_processes 1", "mark=up hold")
        until(self.sockets, "the control socket")
        shutil.rmtree(self.runtime + "/acc")  # as logind does it at the last logout
        until(self.sockets, "a new control socket")
        self.assertEqual(self.running()["guardian_pid"], job.pid)
        self.assertEqual(len(self.sockets()), 1)
        job.process.terminate()
        self.assertEqual(job.wait(), 143)
        self.assertEqual(self.sockets(), [])

    def test_without_a_folder_for_it_there_is_none(self):
        job = self.job("--num_processes 1", "mark=up exit=0", env={"XDG_RUNTIME_DIR": "/nonexistent"})
        self.assertEqual(job.wait(), 0)
        self.assertNotIn("control", job.stderr)

    def test_idle_it_wakes_nothing_up(self):
        job = self.start("--num_processes 1", "mark=up hold")
        self.ask({"do": "status"})
        until(lambda: state_of(job.agent) == "S", "the agent to sleep")

        def switches():
            with open(f"/proc/{job.agent}/status") as f:
                return [line for line in f if "ctxt_switches" in line]
        for _ in range(5):  # what a busy machine does to one window it doesn't do to all
            before = switches()
            time.sleep(2.5)
            if switches() == before:
                return
        self.fail(f"the agent woke up: {before} {switches()}")


class Stop(ControlTest):
    def test_stop_is_as_sigterm(self):
        job = self.start("--num_processes 2", "on=TERM:0 mark=up hold", workers=2)
        self.assertEqual(self.ask({"do": "stop"}), {"ok": True})
        self.assertEqual(job.wait(5), 143)
        self.assert_nothing_left(job)

    def test_the_grace_is_the_one_that_is_named(self):
        job = self.start("--num_processes 1 --grace 60s", "note=TERM mark=up hold hold")
        begin = time.monotonic()
        self.ask({"do": "stop", "grace_s": 1})
        self.assertEqual(job.wait(10), 143)
        self.assertGreater(time.monotonic() - begin, 0.9)
        self.assertLess(time.monotonic() - begin, 20 * SLACK)

    def test_a_second_stop_shortens_the_grace_and_never_lengthens_it(self):
        job = self.start("--num_processes 1", "note=TERM mark=up hold hold")
        self.ask({"do": "stop", "grace_s": 40})
        job.wait_events("got_SIGTERM", 1)
        self.assertEqual(self.ask({"do": "status"})["state"], "stopping")
        self.ask({"do": "stop", "grace_s": 90})
        begin = time.monotonic()
        self.ask({"do": "stop", "grace_s": 0.5})
        self.assertEqual(job.wait(10), 143)
        self.assertLess(time.monotonic() - begin, 20 * SLACK)


class Signals(ControlTest):
    def test_a_signal_reaches_all_workers(self):
        job = self.start("--num_processes 3", "note=USR1 mark=up hold hold", workers=3)
        self.assertEqual(self.ask({"do": "signal", "signal": "USR1"}), {"ok": True})
        job.wait_events("got_SIGUSR1", 3)

    def test_a_signal_that_is_not_passed_on_is_refused_by_name(self):
        self.start("--num_processes 1", "mark=up hold")
        for name in ("KILL", "SIGSTOP", "nonsense"):
            reply = self.ask({"do": "signal", "signal": name})
            self.assertEqual(reply["code"], "bad_request")
            self.assertIn(name, reply["error"])
            self.assertIn("SIGUSR1", reply["error"])

    def test_sigterm_ends_the_job(self):
        job = self.start("--num_processes 1", "mark=up hold")
        self.ask({"do": "signal", "signal": "SIGTERM"})
        self.assertEqual(job.wait(5), 143)


class Restart(ControlTest):
    def test_all_workers_start_anew_and_no_restart_is_used_up(self):
        job = self.start("--num_processes 2 --max_restarts 0", "mark=up hold", workers=2)
        first = {pid for *_, pid in job.events("up")}
        self.running()
        self.assertEqual(self.ask({"do": "restart"}), {"ok": True})
        events = job.wait_events("up", 4)
        self.assertEqual(len({pid for *_, pid in events}), 4)
        status = until(lambda: (lambda s: s if s["state"] == "running" else None)(self.ask({"do": "status"})), "the new round")
        self.assertEqual((status["round"], status["restarts"], status["restarts_used"]), (1, 1, 0))
        self.assertTrue(first.isdisjoint(w["pid"] for w in status["workers"]))
        job.wait_stderr("restarting all workers")
        job.process.terminate()
        self.assertEqual(job.wait(5), 143)
        self.assert_nothing_left(job)

    def test_while_the_job_is_stopped_it_is_refused(self):
        job = self.start("--num_processes 1", "note=TERM mark=up hold hold")
        self.ask({"do": "stop", "grace_s": 60})
        job.wait_events("got_SIGTERM", 1)
        reply = self.ask({"do": "restart"})
        self.assertEqual((reply["code"], reply["error"]), ("conflict", "the job is being stopped"))
        self.ask({"do": "stop", "grace_s": 0})
        self.assertEqual(job.wait(5), 143)

    def test_a_stop_during_the_restart_wins(self):
        job = self.start("--num_processes 1", "note=TERM mark=up hold hold")
        self.running()
        self.ask({"do": "restart"})
        job.wait_events("got_SIGTERM", 1)
        self.assertEqual(self.ask({"do": "status"})["state"], "restarting")
        self.ask({"do": "stop", "grace_s": 0})
        self.assertEqual(job.wait(5), 143)
        self.assertEqual(len(job.events("up")), 1)


class Strangers(ControlTest):
    def test_what_is_no_request_is_told_why_and_harms_nothing(self):
        job = self.start("--num_processes 1", "mark=up hold")
        for line in ("", "GET / HTTP/1.1", "[" * 4000, "x" * 100_000, '{"do":"status"'):
            with contextlib.suppress(ConnectionError):
                reply = self.ask(line)
                self.assertEqual(reply["code"], "bad_request")
        self.running()
        self.assertIsNone(job.process.poll())

    def test_a_crowd_that_says_nothing_keeps_nobody_out_for_long(self):
        self.start("--num_processes 1", "mark=up hold")
        path = until(self.sockets, "the control socket")[0]
        self.running()
        with contextlib.ExitStack() as stack:
            for _ in range(40):
                s = stack.enter_context(socket.socket(socket.AF_UNIX))
                s.connect(path)

            def answered():
                with contextlib.suppress(ConnectionError):
                    return ask_at(path, {"do": "status"})
            self.assertEqual(until(answered, "an answer")["state"], "running")

    @unittest.skipUnless(is_root(), "needs root to be two users")
    def test_another_user_learns_nothing_and_root_may_all(self):
        shutil.chown(self.runtime, NOBODY, NOBODY)
        job = self.start("--num_processes 1", "mark=up hold", user=NOBODY)
        path = until(self.sockets, "the control socket")[0]
        self.running(path)  # as root
        for folder in (self.runtime, self.runtime + "/acc", self.runtime + "/acc/jobs"):
            os.chmod(folder, 0o755)
        os.chmod(path, 0o666)  # the kernel lets it in, the agent doesn't hear it
        script = ("import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
                  "try: s.sendall(b'{\"do\":\"stop\"}\\n'); print(s.makefile().read() or 'nothing')\n"
                  "except ConnectionError: print('nothing')")
        asked = subprocess.run(["python3", "-c", script, path], user=1001, group=1001, extra_groups=[], text=True,
                               capture_output=True, timeout=20 * SLACK)
        self.assertEqual(asked.stdout, "nothing\n", asked.stderr)
        self.assertIsNone(job.process.poll())
        self.assertEqual(ask_at(path, {"do": "status"})["state"], "running")

    @unittest.skipUnless(is_root(), "needs root to be two users")
    def test_the_folder_of_another_user_is_not_used(self):
        shutil.chown(self.runtime, 1001, 1001)
        os.chmod(self.runtime, 0o777)
        self.start("--num_processes 1", "mark=up hold")
        self.assertEqual(os.listdir(self.runtime), [])


class Nodes(ControlTest):
    """Two nodes of one job, both on this machine."""

    def start_both(self, words):
        port = free_port()
        folder = tempfile.mkdtemp(prefix="acc-nodes-")
        token = own_token(f"nodes{port}")
        flags = (f"--nnodes 2 --nproc_per_node 1 --rdzv_backend tcp --rdzv_endpoint 127.0.0.1:{port} --rdzv_id ctl{port} --grace 20s "
                 "--dead_after 20 --lease 40 --node_name ")
        jobs = [self.job(flags + name, words, token=token, folder=folder, env={"XDG_RUNTIME_DIR": self.runtime}) for name in "ab"]
        return jobs

    def test_a_job_that_waits_for_a_node_says_so(self):
        port = free_port()
        job = self.job(f"--nnodes 2 --nproc_per_node 1 --rdzv_backend tcp --rdzv_endpoint 127.0.0.1:{port} --rdzv_id ctl --join_timeout 60s",
                       "mark=up hold", env={"XDG_RUNTIME_DIR": self.runtime})
        until(lambda: self.ask({"do": "status"})["state"] == "waiting for nodes", "the wait for the other node")
        self.ask({"do": "stop"})
        self.assertEqual(job.wait(15), 143)

    def test_one_node_answers_for_the_job_and_stops_it_on_both(self):
        jobs = self.start_both("note=USR1 mark=up hold hold")
        jobs[0].wait_events("up", 2)
        until(lambda: len(self.sockets()) == 2, "both sockets")

        def status():
            seen = self.running()
            return seen if len(seen.get("node_table", [])) == 2 else None
        seen = until(status, "the table of nodes")
        self.assertEqual((seen["state"], seen["nodes"], seen["world_size"], len(seen["workers"])), ("running", 2, 2, 1))
        self.assertEqual({node["node"] for node in seen["node_table"]}, {"a", "b"})
        self.ask({"do": "signal", "signal": "USR1"})
        jobs[0].wait_events("got_SIGUSR1", 2)
        self.ask({"do": "stop", "grace_s": 1})
        for job in jobs:
            self.assertEqual(job.wait(30), 143, job.stderr)


    def test_a_restart_that_one_node_is_asked_for_restarts_both_and_uses_none_up(self):
        jobs = self.start_both("mark=up hold")
        jobs[0].wait_events("up", 2)
        until(lambda: len(self.sockets()) == 2, "both sockets")
        for path in self.sockets():
            self.running(path)
        for times, path in enumerate(self.sockets(), 1):  # the node of the coordinator, and the other one
            self.assertEqual(ask_at(path, {"do": "restart"}), {"ok": True})
            events = jobs[0].wait_events("up", 2 + 2 * times)
            self.assertEqual(len({pid for *_, pid in events}), 2 + 2 * times)
            for other in self.sockets():
                status = until(lambda: (lambda s: s if (s["state"], s["round"]) == ("running", times) else None)(ask_at(other, {"do": "status"})),
                               "the new round")
                self.assertEqual(status["restarts_used"], 0)
                self.assertIn("restart asked for on", status["restart_reason"])
        self.ask({"do": "stop", "grace_s": 1})
        for job in jobs:
            self.assertEqual(job.wait(30), 143, job.stderr)
            self.assertIn("restart asked for on", job.stderr)


    def test_a_restart_asked_while_a_round_forms_is_refused_with_a_sentence(self):
        port = free_port()
        job = self.job(f"--nnodes 2 --nproc_per_node 1 --rdzv_backend tcp --rdzv_endpoint 127.0.0.1:{port} --rdzv_id ctl --join_timeout 60s",
                       "mark=up hold", env={"XDG_RUNTIME_DIR": self.runtime})
        until(lambda: self.sockets(), "the socket")
        answer = until(lambda: (lambda said: None if "isn't reached" in said.get("error", "") else said)(self.ask({"do": "restart"})), "the coordinator")
        self.assertEqual(answer.get("code"), "conflict", answer)
        self.assertIn("the job waits for its nodes", answer["error"])
        self.ask({"do": "stop"})
        self.assertEqual(job.wait(15), 143)


class Folders(ControlTest):
    def test_a_path_longer_than_a_sockets_address_may_be(self):
        self.runtime = os.path.join(self.runtime, "d" * 120, "e" * 120)
        os.makedirs(self.runtime, mode=0o700)
        self.start("--num_processes 1", "mark=up hold")
        self.running()

    def test_the_folder_of_the_job_comes_first(self):
        folder = tempfile.mkdtemp(prefix="acc-folder-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.start("--num_processes 1", "mark=up hold", env={"ACC_JOB_FOLDER": folder})
        path = os.path.join(folder, "control.sock")
        until(lambda: os.path.exists(path), "the control socket")
        self.running(path)
        self.assertEqual(self.sockets(), [])

    def test_the_socket_of_a_killed_agent_is_replaced(self):
        folder = tempfile.mkdtemp(prefix="acc-folder-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        path = os.path.join(folder, "control.sock")
        first = self.start("--num_processes 1", "mark=up hold", env={"ACC_JOB_FOLDER": folder})
        until(lambda: os.path.exists(path), "the control socket")
        os.kill(first.agent, signal.SIGKILL)
        self.assertEqual(first.wait(), 70)
        self.assertTrue(os.path.exists(path))
        second = self.start("--num_processes 1", "mark=up hold", env={"ACC_JOB_FOLDER": folder})

        def status():
            with contextlib.suppress(ConnectionError):
                return ask_at(path, {"do": "status"})
        self.assertIn(second.token, until(status, "the second agent")["command"])


if __name__ == "__main__":
    main()
