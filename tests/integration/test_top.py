"""acc-top on a pseudo-terminal: against plain acc-launch, a service that a test plays, and acc-agent itself."""
import json, os, re, signal, subprocess, threading, time, unittest

import test_cluster_launch
import test_ctl
from harness import ACC, BIN, PROGRAMS, SLACK, children_of, hide_other_jobs, main, read, until, write
from hosts import needs_hosts
from test_ctl import CTL, JOB, CtlTest, Service
from tty_program import TtyProgram, pyte

TOP = os.path.join(PROGRAMS.name, "acc-top")
os.symlink("acc-ctl", TOP)


@unittest.skipUnless(pyte, "python3-pyte is missing")
class TopTest(CtlTest):
    def top(self, *words, rows=24, columns=80, program=TOP, **variables):
        env = {**self.environment, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **variables}
        screen = TtyProgram([program, *words], {k: v for k, v in env.items() if v is not None}, self.runtime, rows, columns)
        self.addCleanup(screen.close)
        return screen

    def job_of(self, script, count=2, flags="", **variables):
        """A job of plain acc-launch whose workers run a script of the shell."""
        path = os.path.join(self.runtime, "work.sh")
        write(path, "#!/bin/bash\n" + script, 0o755)
        job = self.job(f"--num_processes {count} {flags}", [], program=["--no_python", path], env={"XDG_RUNTIME_DIR": self.runtime, **variables})
        until(self.ps, "the job's control socket")
        return job

    def ends(self, screen, code):
        self.assertEqual(screen.wait(), code)
        self.assertTrue(screen.is_restored())


HOLD = "trap 'echo got USR1' USR1; echo up $RANK; while :; do sleep 0.05; done"


class Refused(TopTest):
    def test_without_a_terminal_it_says_what_to_use_instead(self):
        err = self.ctl("top", code=2)[1]
        self.assertIn("needs a terminal, and standard output is none", err)
        self.assertIn("acc-ctl status --json ID", err)

    def test_a_terminal_that_is_unknown_or_too_simple_is_named(self):
        for kind, text in (("nonsense", "no description of a terminal of type 'nonsense'"), ("dumb", "can't show a whole screen"),
                           (None, "TERM, which names the type of this terminal, is not set")):
            screen = self.top(TERM=kind)
            self.assertEqual(screen.wait(), 2)
            self.assertIn(text, screen.text().replace("\n", ""))

    def test_a_job_that_is_not_there_is_exit_code_3(self):
        self.job_of(HOLD)
        self.assertIn("there is no job 'other'", self.ctl("top", "other", code=3)[1])

    def test_help_is_that_of_the_verb(self):
        for words in ((CTL, "top", "--help"), (TOP, "--help")):
            self.assertIn("usage: acc-ctl top", subprocess.run(words, capture_output=True, text=True, check=True).stdout)


class Pages(TopTest):
    def test_from_the_list_to_the_ranks_to_a_log_and_back(self):
        job = self.job_of(HOLD)
        screen = self.top()
        screen.wait_for(f"work.sh.{job.pid}")
        screen.press("enter")
        screen.wait_for("up 1", "2 ranks running", lambda text: " - up" not in text, what="two ranks with their processors' shares")
        screen.press("down", "enter")
        screen.wait_for(f"rank 1 of work.sh.{job.pid}, stdout")
        screen.wait_for("\nup 1\n")
        screen.press("tab")
        screen.wait_for("stderr")
        screen.press("esc")
        screen.wait_for("LAST LINE")
        screen.press("esc")
        screen.wait_for("COMMAND")
        screen.press("q")
        self.ends(screen, 0)
        self.assertTrue(job.alive())

    def test_the_size_follows_the_window(self):
        self.job_of(HOLD)
        screen = self.top("work")
        screen.wait_for("up 1")
        for rows, columns in ((60, 200), (5, 20), (1, 1), (24, 80), (40, 100)):
            screen.size(rows, columns)
            if rows >= 24:
                screen.wait_for(lambda text: text.split("\n")[rows - 1].startswith("F1Help") and "up 1" in text, what=f"{columns}x{rows}")
        screen.press("f10")
        self.ends(screen, 0)

    def test_a_log_that_grows_is_followed(self):
        self.job_of("i=0; while :; do echo line $((i++)); sleep 0.02; done", count=1)
        screen = self.top("work")
        screen.wait_for("line ")
        screen.press("enter")
        number = lambda text: int(text.split("\n")[21].split()[1]) if text.split("\n")[21].startswith("line ") else 0
        first = number(screen.wait_for(lambda text: number(text) > 0, what="a full page"))
        follows = lambda text: text.split("\n")[1:22] == [f"line {i}" for i in range(number(text) - 20, number(text) + 1)]
        screen.wait_for(lambda text: number(text) > first + 120, follows, what="later lines, without a gap")  # from there the next match of "line 7" is line 7
        screen.press("pgup")
        held = number(screen.wait_for("line "))
        screen.press("f1")
        screen.wait_for("any key goes back")
        screen.press("q", "/", *"line 7", "enter")
        screen.wait_for(lambda text: text.split("\n")[1].startswith("line 7"), what="the line that was searched")
        self.assertGreater(held, 0)
        screen.press("q")
        self.ends(screen, 0)

    def test_output_that_nobody_keeps_is_told(self):
        """One worker alone has the terminal of its acc-launch."""
        path = os.path.join(self.runtime, "work.sh")
        write(path, "#!/bin/bash\necho straight; sleep 1000", 0o755)
        launch = TtyProgram([ACC, "--num_processes", "1", "--no_python", path], {**self.environment, "TERM": "xterm-256color"}, self.runtime)
        self.addCleanup(launch.close)
        launch.wait_for("straight")
        until(self.ps, "the job's control socket")
        screen = self.top("work")
        screen.wait_for("1 rank running")
        screen.press("enter")
        screen.wait_for("its output goes to where acc-launch was started; --log_dir would keep it")
        screen.press("q")
        self.ends(screen, 0)
        os.kill(launch.pid, signal.SIGTERM)
        self.assertEqual(launch.wait(), 143)

    def test_nothing_that_a_job_writes_steers_the_terminal(self):
        self.job_of(r"printf '\033]0;pwned\007\033[2J\033[31mred\033[0m \302\2335mC1 \342\200\256turned 東京\n'; printf '\033[6n\033c' >&2; sleep 1000",
                    count=1)
        screen = self.top("work", "--socket", "/nonexistent/\x1b[2Jx")
        screen.wait_for("red C1 turned 東京")
        screen.press("enter")
        screen.wait_for("\nred C1 turned 東京")
        screen.press("tab", "esc", "q")
        self.ends(screen, 0)
        for bad in (b"pwned", b"\x1b[6n", b"\x1bc", b"\xc2\x9b", b"\xe2\x80\xae", b"\x07"):
            self.assertNotIn(bad, screen.raw)

    def test_a_locale_without_utf8_gets_ascii(self):
        self.job_of("echo 東京 here; sleep 1000", count=1)
        screen = self.top("work", LC_ALL="POSIX")
        screen.wait_for("???? here")
        self.assertTrue(all(byte < 0x80 for byte in screen.raw))
        screen.press("q")
        self.ends(screen, 0)

    def test_many_ranks_are_scrolled_sorted_and_filtered(self):
        self.job_of(HOLD, count=40)
        screen = self.top("work")
        screen.wait_for("40 ranks running")
        screen.press("end")
        screen.wait_for("up 39")
        screen.press("f4", *"up 7", "enter")
        screen.wait_for(lambda text: "up 7" in text and "up 39" not in text, what="the filtered rows")
        screen.press("esc", "f6", "home", "enter")  # by RANK once more: the other way round
        screen.press("home")
        screen.wait_for("RANKv", "up 39")
        screen.press("f5")
        screen.wait_for("F5List")
        screen.press("q")
        self.ends(screen, 0)


class Gpus(TopTest):
    def test_the_gpus_of_ranks_are_sampled_while_they_are_watched(self):
        library = os.path.join(BIN, "libfake_nvml.so")
        if not os.path.exists(library):
            self.skipTest("libfake_nvml.so isn't built")
        facts = os.path.join(self.runtime, "nvml")
        write(facts, "gpus=2 use:0=93 memory:0=1000 use:1=40 memory:1=1000")
        job = self.job_of(HOLD, ACC_NVML_LIBRARY=library, FAKE_NVML=facts)
        self.ctl("status", "work")
        self.assertEqual(self.samplers(job), [])
        screen = self.top("work")
        screen.wait_for("GPU%", re.compile(r"(?m)^ +0 .* 93 up 0$"), re.compile(r"(?m)^ +1 .* 40 up 1$"), re.compile("2 GPUs 6[67] %"))
        sampler, = self.samplers(job)
        os.kill(job.pid, signal.SIGTERM)
        job.wait()
        until(lambda: comm(sampler) != "acc:gpus", "the sampler's end")
        screen.press("q")
        self.ends(screen, 0)

    def samplers(self, job):
        """Of this job alone: children of its guardian."""
        return [pid for pid in children_of(job.pid) if comm(pid) == "acc:gpus"]


def comm(pid):
    try:
        return read(f"/proc/{pid}/comm").strip()
    except OSError:
        return ""


class Ends(TopTest):
    def test_signals_end_it_and_leave_the_terminal_as_it_was(self):
        job = self.job_of(HOLD)
        for signo, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            screen = self.top("work")
            screen.wait_for("up 1")
            os.kill(screen.pid, signo)
            self.ends(screen, code)
        screen = self.top("work")
        screen.wait_for("up 1")
        screen.press("\x03")
        self.ends(screen, 0)
        self.assertTrue(job.alive())

    def test_ctrl_backslash_ends_it_and_leaves_the_terminal_as_it_was(self):
        job = self.job_of(HOLD)
        screen = self.top("work")
        screen.wait_for("up 1")
        screen.press("\x1c")
        self.ends(screen, 131)
        self.assertTrue(job.alive())

    def test_a_fault_of_its_own_restores_the_terminal(self):
        self.job_of(HOLD)
        screen = self.top("work")
        screen.wait_for("up 1")
        os.kill(screen.pid, signal.SIGSEGV)
        self.ends(screen, -signal.SIGSEGV)

    def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_takes_it_back(self):
        self.job_of(HOLD)
        screen = self.top("--norc", "-i", program="/bin/bash", PS1="shell> ")
        screen.wait_for("shell>")
        screen.press(f"{TOP} work\r")
        screen.wait_for("up 1")
        for _ in range(3):
            screen.press("\x1a")
            screen.wait_for("Stopped", lambda text: "F10Quit" not in text.split("Stopped")[-1], what="the shell's screen")
            screen.press("echo still $((6*7))\r")
            screen.wait_for("still 42")
            screen.size(30, 90)  # meanwhile
            screen.press("fg\r")
            screen.wait_for(lambda text: "up 1" in text and text.split("\n")[-1].startswith("F1Help"), what="the ranks again")
        screen.press("q")
        screen.wait_for("shell>")
        screen.press("exit\r")
        self.assertEqual(screen.wait(), 0)

    def test_the_job_ends_while_it_is_watched(self):
        job = self.job_of(HOLD)
        screen = self.top("work")
        screen.wait_for("up 1")
        os.kill(job.pid, signal.SIGTERM)
        job.wait()
        screen.wait_for("the job is gone: its acc-launch has ended", "0 of 2 ranks running", "up 1")
        screen.press("f9")
        screen.wait_for("the job has ended")
        screen.press("enter")
        screen.wait_for("doesn't answer")
        screen.press("esc", "q")
        self.ends(screen, 0)

    def test_an_agent_that_is_stopped_holds_up_no_key(self):
        job = self.job_of(HOLD)
        screen = self.top("work")
        screen.wait_for("up 1")
        os.kill(job.agent, signal.SIGSTOP)
        try:
            screen.wait_for("no answer for")
            begin = time.monotonic()
            for _ in range(6):  # if each waited for the agent, for 3 s a time, this would take half a minute
                screen.press("f1")
                screen.wait_for("any key goes back")
                screen.press("f1")
                screen.wait_for("up 1")
            self.assertLess(time.monotonic() - begin, 20 * SLACK)
        finally:
            os.kill(job.agent, signal.SIGCONT)
        screen.wait_for(lambda text: "no answer for" not in text, what="an answer")
        os.kill(job.agent, signal.SIGSTOP)
        try:
            screen.wait_for("no answer for")
            screen.press("q")
            self.assertEqual(screen.wait(), 0)
        finally:
            os.kill(job.agent, signal.SIGCONT)


class Orders(TopTest):
    def test_a_signal_is_sent_after_a_yes(self):
        self.job_of(HOLD)
        screen = self.top("work")
        screen.wait_for("up 1")
        screen.press("f9", "down", "down", "down", "down", "enter")
        screen.wait_for("Send SIGUSR1 to all ranks of work?")
        screen.press("n")
        screen.wait_for("nothing was sent")
        screen.press("k", "down", "down", "down", "down", "enter")
        screen.wait_for("Send SIGUSR1")
        screen.press("y")
        screen.wait_for("passed SIGUSR1 on to work.sh.")
        screen.wait_for("got USR1")

    def test_a_restart_is_followed_by_the_next_attempt(self):
        self.job_of("echo attempt $TORCHELASTIC_RESTART_COUNT; sleep 1000")
        screen = self.top("work")
        screen.wait_for("attempt 0")
        screen.press("enter")
        screen.wait_for("\nattempt 0\n")
        self.ctl("restart", "work")
        screen.wait_for("\nattempt 0\n-- attempt 1 --\n")
        screen.press("esc")
        screen.wait_for("last restart: asked for over the control socket")


class OfService(TopTest):
    def setUp(self):
        super().setUp()
        os.makedirs(self.runtime + "/acc")
        self.path = self.runtime + "/acc/agent.sock"

    def serve(self):
        service = Service(self.path)
        threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.addCleanup(service.server_close)
        worker = {"rank": 0, "local_rank": 0, "pid": 7, "state": "running", "seconds": 5, "rss_bytes": 1 << 30, "cpu_s": 3, "step": 77,
                  "steps_per_second": 2.5, "seconds_since_heartbeat": 0.1, "section": None, "gpus": [0], "last_line": "the last \x1b[2Jline"}
        live = {"job": "train", "state": "running", "round": 1, "restarts_used": 1, "max_restarts": 3, "world_size": 1, "node": "vm",
                "restart_reason": "rank 0 \x1b]0;x\x07died", "workers": [worker], "gpus": [{"index": 0, "percent": 93, "memory_used": 1, "memory_total": 2}]}
        service.replies["GET", "/v1/jobs"] = (200, {"jobs": [JOB]})
        service.replies["GET", f"/v1/jobs/{JOB['id']}"] = (200, {**JOB, "live": live})
        return service

    def test_a_service_that_goes_away_and_comes_back(self):
        service = self.serve()
        screen = self.top("train")
        screen.wait_for("STEPS/S", re.compile(r"77 +2\.5 +1\.0 GiB +- +93 the last line"), "last restart: rank 0 died")
        service.shutdown()
        service.server_close()
        os.unlink(self.path)
        screen.wait_for("no answer for", "the last line")
        self.serve()
        screen.wait_for(lambda text: "no answer for" not in text and "last restart" in text, what="the service again")
        screen.press("q")
        self.ends(screen, 0)
        self.assertTrue(any("last_lines=1&gpus=1" in path for _, path, *_ in service.requests))

    def test_an_older_service_is_asked_for_less(self):
        service = self.serve()
        known = service.replies["GET", f"/v1/jobs/{JOB['id']}"][1]

        def answer(handler):
            refused = "?" in handler.path
            data = json.dumps({"error": "last_lines: there are none", "code": "bad_request"} if refused else known).encode()
            handler.send_response(400 if refused else 200)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)
        service.replies["GET", f"/v1/jobs/{JOB['id']}"] = answer
        screen = self.top("train")
        screen.wait_for("1 rank running")
        screen.press("q")
        self.ends(screen, 0)

    def test_a_job_that_failed_and_is_removed(self):
        service = self.serve()
        screen = self.top("train")
        screen.wait_for("1 rank running")
        over = {**JOB, "state": "failed", "exit_code": 137, "reason": "rank 0 was killed by SIGKILL (9)", "ended_ms": 61_000}
        service.replies["GET", f"/v1/jobs/{JOB['id']}"] = (200, over)
        screen.wait_for("rank 0 was killed by SIGKILL", "failed, exit code 137 after 1 min", "0 of 1 rank running")
        del service.replies["GET", f"/v1/jobs/{JOB['id']}"]
        screen.wait_for("the job is gone: it was removed")
        screen.press("q")
        self.ends(screen, 0)


@unittest.skipUnless(os.path.exists(test_ctl.AGENT), "acc-agent isn't built")
class OfDaemon(TopTest):
    """acc-agent itself."""
    begin, end, state_is = test_ctl.Real.begin, test_ctl.Real.end, test_ctl.Real.state_is

    def setUp(self):
        super().setUp()
        test_ctl.Real.make_service(self)

    def test_ranks_logs_and_the_next_attempt_over_a_restart_of_the_service(self):
        path = os.path.join(self.runtime, "work.sh")
        write(path, "#!/bin/bash\necho out $RANK of $TORCHELASTIC_RESTART_COUNT; echo err $RANK >&2; while :; do sleep 0.05; done", 0o755)
        job = self.ctl("submit", "--detach", "--name", "watched", "--", "--num_processes", "2", "--max_restarts", "2", "--no_python",
                       path)[0].strip()
        screen = self.top()
        screen.wait_for(job)
        screen.press("enter")
        screen.wait_for("2 ranks running", re.compile("err 1|out 1 of 0"))
        screen.press("end", "enter")
        screen.wait_for("\nout 1 of 0")
        screen.press("tab")
        screen.wait_for("\nerr 1")
        screen.press("esc")
        screen.wait_for("LAST LINE")
        self.agent.kill()
        self.agent.wait()
        screen.wait_for("no answer for")
        self.begin()
        screen.wait_for(lambda text: "no answer for" not in text and "2 ranks running" in text, what="the service again")
        screen.press("enter")
        screen.wait_for("\nout 1 of 0")
        self.ctl("restart", "watched")
        screen.wait_for("\nout 1 of 1")
        screen.press("esc")
        screen.wait_for("LAST LINE")
        screen.press("f9", "end", "up", "enter")
        screen.wait_for(f"Stop {job}? It ends the job.")
        screen.press("y")
        screen.wait_for(f"{job}  stopped")
        screen.press("enter")
        screen.wait_for("\nout 1 of")
        screen.press("esc", "q")
        self.ends(screen, 0)


@needs_hosts
@unittest.skipUnless(pyte, "python3-pyte is missing")
class OnHosts(test_cluster_launch.OnDaemons):
    """One job through the daemons of two hosts."""

    def test_nodes_ranks_and_logs_of_all_hosts_and_a_daemon_that_goes_away(self):
        self.begin("a b")
        script = os.path.join(self.folder, "work.sh")
        write(script, "#!/bin/bash\necho up $RANK; echo err $RANK >&2; while :; do sleep 0.05; done", 0o755)
        job = self.launch("", "a:2,b:2", "--no_python", program=[script])
        env = {**os.environ, "ACC_AGENT_SOCKET": self.nodes["a"].path, "HOME": job.folder, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        screen = TtyProgram([*self.at("a"), TOP], env, "/")
        self.addCleanup(screen.close)
        screen.wait_for("1 job, 1 running", "hosts-")
        screen.press("enter")
        screen.wait_for("4 ranks on 2 nodes", "4 ranks running")
        screen.press("f5")
        screen.wait_for("F5List", *(re.compile(rf"(?m)^{host} +running") for host in "ab"))
        screen.press("end", "enter")
        screen.wait_for("rank 3 of hosts-")
        screen.wait_for("\nup 3")
        screen.press("tab")
        screen.wait_for("\nerr 3")
        screen.press("esc")
        daemon = self.nodes["b"]
        daemon.process.kill()
        daemon.process.wait()
        screen.wait_for("no answer for", re.compile("(?m)^b +no answer"), "4 ranks")
        daemon.start()
        screen.wait_for(lambda text: "no answer" not in text, what="b again")
        os.kill(job.pid, signal.SIGTERM)
        screen.wait_for(lambda text: "stopped" in text.split("\n")[0], "0 of 4 ranks running", what="the job's end")
        screen.wait_for(re.compile("(?m)^b +(stopped|failed)"))
        screen.press("q")
        self.assertEqual(screen.wait(), 0)
        self.assertTrue(screen.is_restored())
        job.wait(30)


if __name__ == "__main__":
    hide_other_jobs()
    main()
