"""One command runs a job on several hosts through their daemons: acc-launch --hosts without --ssh."""
import contextlib, fcntl, json, os, pty, re, shutil, signal, subprocess, termios, time, unittest

import harness
from harness import ACC, BIN, FAKE, PATIENCE, PROGRAMS, SLACK, Job, JobTest, main, processes_with, read, until, write
from hosts import needs_hosts
from test_agent_cluster import ALICE, ClusterTest
from test_agent_daemon import ENDED

CTL = shutil.copy(os.path.join(BIN, "acc-ctl"), PROGRAMS.name)
# No test is about these: longer than a machine stands still now and then, and short enough for those that lose a host.
TIMES = f"--dead_after {6 * SLACK:.0f}s --lease {12 * SLACK:g}s --join_timeout 30s --last_call 5s --grace 2s --restart_delay 0"
FLAGS = f"--cpu --num_cpu_threads_per_process 1 {TIMES} --env FAKE_EVENTS"


class OnDaemons(ClusterTest, JobTest):
    """a, b and c with a daemon each; alice has them all, under other numbers."""
    def setUp(self):
        super().setUp()
        for host, uid in (("a", ALICE), ("b", 1005), ("c", 1006)):
            write(self.hosts.etc[host]["/etc/passwd"], f"root:x:0:0::/root:/bin/sh\nalice:x:{uid}:{uid}::/tmp:/bin/sh\n")

    def begin(self, hosts="a b c", **flags):
        self.nodes = {host: self.daemon(host, **flags.get(host, {})) for host in hosts.split()}
        return self.nodes

    def at(self, host, user=None):
        """What runs the rest on that host, as that user."""
        drop = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return [*self.hosts.wrap(host), *drop]

    def launch(self, words, hosts="a:1,b:1,c:1", flags="", user=None, env=None, **options):
        job = self.job(f"--hosts {hosts} {FLAGS} {flags}", words, wrap=self.at("a", user),
                       env={"ACC_AGENT_SOCKET": self.nodes["a"].path, **(env or {})}, **options)
        with open(job.events_file, "a"):  # not emptied: the workers may be quicker than we are
            pass
        os.chmod(job.events_file, 0o666)
        self.last = job
        return job

    def ctl(self, *words, code=0, user=None, job=None, host="a"):
        job = job or self.last
        environment = {**os.environ, "ACC_AGENT_SOCKET": self.nodes["a"].path, "HOME": job.folder}
        done = subprocess.run([*self.at(host, user), CTL, *words], capture_output=True, text=True, env=environment, cwd="/", timeout=60 * PATIENCE)
        self.assertEqual(done.returncode, code, (words, done.stdout, done.stderr))
        return done.stdout

    def jobs(self, host):
        return self.nodes[host].ask("GET", "/v1/jobs").json["jobs"]

    def nothing_left(self, job, within=10.0):
        until(lambda: not job.all_alive(), f"the end of {job.all_alive()}", within)
        for host, daemon in self.nodes.items():
            if daemon.process.poll() is None:
                until(lambda: all(one["state"] in ENDED for one in self.jobs(host) if one["name"].startswith("hosts-")), f"the end of all jobs on {host}", within)

    def ends(self, job, code, deadline=30.0):
        self.assertEqual(job.wait(deadline), code, job.stderr)
        self.nothing_left(job)
        return job

    def plain(self, text):
        return re.sub(r"^\[default\d+\]:", "", text, flags=re.M)


@needs_hosts
class Jobs(OnDaemons):
    def test_a_job_of_a_plain_user_runs_on_three_hosts_with_the_right_ranks(self):
        self.begin()
        job = self.launch("mark=up", "a:1,b:3,c:2", user=ALICE)
        self.ends(job, 0)
        self.assertEqual(sorted(int(rank) for _, rank, _, _ in job.events("up")), [0, 1, 2, 3, 4, 5])
        self.assertEqual(job.stderr, "")
        for host, slots in (("a", 1), ("b", 3), ("c", 2)):
            record, = self.jobs(host)
            self.assertEqual((record["user"], record["slots"], record["state"]), ("alice", slots, "succeeded"))

    def test_ranks_folder_and_variables_are_as_on_the_launching_host(self):
        self.begin()
        script = ("import os, socket\nprint(os.environ['RANK'], os.environ['WORLD_SIZE'], os.environ['LOCAL_RANK'], socket.gethostname(),"
                  " os.getcwd(), repr(os.environ.get('HERE')), os.environ.get('OTHER'))\n")
        folder = self.folder + "/work"
        os.mkdir(folder, 0o777)
        os.chmod(folder, 0o777)
        write(folder + "/shows.py", script)
        job = self.launch("", "a:1,b:2", "--env HERE", program=["shows.py"], folder=folder, env={"HERE": "a b%\n'c'", "OTHER": "x"})
        self.ends(job, 0)
        here = repr("a b%\n'c'")
        self.assertEqual(sorted(job.stdout.splitlines()), [
            f"[default{rank}]:{rank} 3 {local} {host} {folder} {here} None" for rank, local, host in ((0, 0, "a"), (1, 0, "b"), (2, 1, "b"))])

    def test_output_of_all_ranks_comes_back_whole(self):
        self.begin()
        job = self.launch("lines=50000", "a:1,b:2,c:1")
        self.ends(job, 0, 60)
        by_rank = {}
        for line in job.stdout.splitlines():
            rank, _, text = line.partition("]:")
            by_rank.setdefault(rank, []).append(text)
        self.assertEqual(sorted(by_rank), [f"[default{rank}" for rank in range(4)])
        for rank, lines in by_rank.items():
            # A comparison of such lists that fails takes minutes to print.
            self.assertTrue(lines == [f"line {rank[8:]} {i}" for i in range(50000)], f"{rank}: {len(lines)} lines, the last {lines[-1]!r}")

    def test_the_exit_code_is_the_jobs_and_the_report_comes_once(self):
        self.begin("a b")
        for failing in (0, 1):
            job = self.ends(self.launch(f"any rank={failing} exit=7 any hold", "a:1,b:1"), 7)
            self.assertEqual(len(re.findall("job failed", job.stderr)), 1, job.stderr)
            self.assertIn(f"rank {failing} ", job.stderr)

    def test_events_of_all_hosts_are_one_file_here(self):
        self.begin()
        job = self.ends(self.launch("mark=up rank=1 attempt=0 exit=3 any attempt=0 hold any", flags="--max_restarts 1 --events all.jsonl"), 0)
        with open(os.path.join(job.folder, "all.jsonl")) as f:
            events = [json.loads(line) for line in f]
        for name in "abc":
            own = [e for e in events if e["node"] == name]
            self.assertEqual([e["seq"] for e in own], list(range(len(own))), name)
            self.assertEqual((own[0]["event"], own[-1]["event"]), ("job_started", "job_ended"))
        self.assertEqual([(e["node"], e["rank"]) for e in events if e["event"] == "failure"], [("b", 1)])
        # The daemons keep theirs as well.
        id = next(one["id"] for one in self.jobs("b"))
        self.assertEqual(self.nodes["b"].ask("GET", f"/v1/jobs/{id}/logs?stream=events&format=raw").status, 200)
        self.assertIn("--detach leaves none", self.ended_early("--detach --events all.jsonl"))

    def ended_early(self, flags):
        job = self.launch("mark=up", flags=flags)
        self.assertEqual(job.wait(), 2, job.stderr)
        return job.stderr

    def test_one_machine_under_two_names_was_two_nodes(self):
        self.begin("a b")
        address = self.hosts.address("b")
        job = self.ends(self.launch("mark=up", f"b:1,{address}:1"), 1)
        self.assertRegex(job.stderr, rf"{re.escape(address)}: is b, under another name|b: is {re.escape(address)}, under another name")
        self.assertEqual(job.events("up"), [])

    def test_a_command_line_of_a_thousand_file_names_was_refused_with_a_dump_of_the_plan(self):
        self.begin("a b")
        script = self.folder + "/counts"
        write(script, "#!/bin/sh\necho $#\n", 0o755)
        names = " ".join(f"/data/set/part-{i:06d}-of-100000.parquet" for i in range(1000))
        for _ in range(3):
            job = self.ends(self.launch(names, "a:1,b:1", program=["--no_python", script]), 0)
            self.assertEqual(self.plain(job.stdout), "1001\n" * 2)

    def test_a_failed_round_is_restarted_on_all_hosts(self):
        self.begin()
        report = self.folder + "/report.json"
        job = self.ends(self.launch("mark=up rank=1 attempt=0 exit=3 any attempt=0 hold", flags=f"--max_restarts 1 --report {report}"), 0)
        self.assertEqual(sorted(rank for _, rank, attempt, _ in job.events("up") if attempt == "1"), ["0", "1", "2"])
        with open(report) as f:
            told = json.load(f)
        self.assertEqual((told["verdict"], told["failed_attempts"], told["failures"]), ("succeeded", 1, []))  # it was 0: the worker was another host's


@needs_hosts
class Ends(OnDaemons):
    def started(self, words="mark=up hold", hosts="a:1,b:1,c:1", count=3, **options):
        self.begin()
        job = self.launch(words, hosts, **options)
        job.wait_events("up", count, 20)
        return job

    def test_ctrl_c_stops_all_hosts_and_is_told_once(self):
        job = self.started("note=INT mark=up hold", flags="--grace 6s")  # in which each is to say that it got it
        job.process.send_signal(signal.SIGINT)
        self.ends(job, 130)
        self.assertEqual(len(job.events("got_SIGINT")), 3)
        self.assertEqual(len(re.findall("got SIGINT", job.stderr)), 1, job.stderr)

    def test_after_an_early_ctrl_c_the_other_hosts_waited_for_the_first(self):
        self.begin("a b")
        for after in (0, 0.03, 0.06, 0.09, 0.12, 0.15, 0.2):
            job = self.launch("mark=up hold", "a:1,b:1")
            until(lambda: job.agent, "the agent", 5)
            time.sleep(after)  # the moment is what is tried
            job.process.send_signal(signal.SIGINT)
            self.assertIn(job.wait(15), (130, -signal.SIGINT), job.stderr)  # the latter: before it could handle one
            self.nothing_left(job)

    def test_sigterm_stops_all_hosts(self):
        job = self.started()
        job.process.send_signal(signal.SIGTERM)
        self.ends(job, 143)

    def test_usr1_reaches_each_worker_once(self):
        job = self.started("note=USR1 on=TERM:0 mark=up hold")
        job.process.send_signal(signal.SIGUSR1)
        job.wait_events("got_SIGUSR1", 3)
        job.process.send_signal(signal.SIGTERM)
        self.ends(job, 143)
        self.assertEqual(len(job.events("got_SIGUSR1")), 3)

    def test_sigterm_of_a_manager_to_all_processes_killed_the_bridges_and_the_nodes_went_on(self):
        """As of Slurm with linuxproc, systemd, PBS and LSF."""
        self.begin()
        for order in ("1", "-1"):
            job = self.launch("on=TERM:0 mark=up hold")
            job.wait_events("up", 3, 20)
            self.signal_all_processes(job, signal.SIGTERM, order)
            self.ends(job, 143)

    def test_usr1_of_a_manager_to_all_processes_killed_the_bridges(self):
        job = self.started("note=USR1 on=TERM:0 mark=up hold")
        self.signal_all_processes(job, signal.SIGUSR1)
        job.wait_events("got_SIGUSR1", 3)
        time.sleep(1.5)  # the guardian holds its own copy back for 500 ms
        job.process.send_signal(signal.SIGTERM)
        self.ends(job, 143)
        self.assertEqual(len(job.events("got_SIGUSR1")), 3)

    def test_a_killed_guardian_leaves_nothing_on_any_host(self):
        job = self.started()
        job.process.kill()
        job.process.wait()
        self.nothing_left(job, 20)

    def test_a_killed_agent_leaves_nothing_on_any_host(self):
        job = self.started()
        os.kill(job.agent, signal.SIGKILL)
        self.assertEqual(job.wait(40), 70, job.stderr)
        self.nothing_left(job, 20)

    def test_both_killed_at_once_leave_nothing_on_any_host(self):
        job = self.started()
        for pid in (job.agent, job.pid):
            os.kill(pid, signal.SIGKILL)
        job.process.wait()
        self.nothing_left(job, 20)

    def test_after_the_loss_of_the_first_host_the_jobs_failure_was_never_named(self):
        job = self.started("mark=up attempt=0 hold any attempt=1 rank=1 exit=9 any hold", hosts="b:1,a:1,c:1",
                           flags="--nnodes 2:3 --max_restarts 1")
        part, = self.jobs("b")
        os.kill(part["pid"], signal.SIGKILL)
        self.ends(job, 9, 60)
        self.assertIn("this node takes over as coordinator", job.stderr)
        self.assertEqual(len(re.findall("job failed", job.stderr)), 1, job.stderr)
        self.assertRegex(job.stderr, r"job failed: rank 1 (on \S+ )?exited with code 9")
        self.assertNotIn("job ended", job.stderr)  # of the part of the first host alone

    def test_daemons_that_are_killed_cost_neither_the_job_nor_a_line(self):
        folder = self.folder + "/work"
        os.mkdir(folder, 0o777)
        os.chmod(folder, 0o777)
        write(folder + "/counts.py", "import os, time\nopen('up' + os.environ['RANK'], 'w').close()\nfor i in range(400):\n"
              "    print('line', i, 'x' * 200, flush=True)\n    time.sleep(0.01)\n"
              # The failure of one ends the other.
              "open('done' + os.environ['RANK'], 'w').close()\nwhile not os.path.exists('done0') or not os.path.exists('done1'):\n"
              "    time.sleep(0.01)\nraise SystemExit(5)\n")
        self.begin("a b")
        job = self.launch("", "a:1,b:1", program=["counts.py"], folder=folder)
        until(lambda: {"up0", "up1"} <= set(os.listdir(folder)), "both workers", 20)
        for host in ("a", "b", "b", "a"):
            self.nodes[host].process.kill()
            self.nodes[host].process.wait()
            self.nodes[host].start().wait_ready()
        self.ends(job, 5, 40)
        for rank in (0, 1):
            lines = [int(line.split()[1]) for line in job.stdout.splitlines() if line.startswith(f"[default{rank}]:line")]
            self.assertEqual(lines, list(range(400)))


    def test_a_second_ctrl_c_did_not_reach_the_other_hosts(self):
        job = self.started("ignore=INT ignore=TERM mark=up hold", "a:1,b:1", 2, flags="--grace 60s")
        job.process.send_signal(signal.SIGINT)
        job.wait_stderr("got SIGINT")  # two that are pending count as one
        job.process.send_signal(signal.SIGINT)
        self.ends(job, 130, 20)

    def test_a_third_ctrl_c_kills_the_workers_of_the_other_hosts(self):
        job = self.started("ignore=INT ignore=TERM mark=up hold", "a:1,b:1", 2, flags="--grace 60s")
        for answer in ("got SIGINT", "Ctrl-C again to kill", ""):
            job.process.send_signal(signal.SIGINT)
            job.wait_stderr(answer)
        self.ends(job, 130, 20)
        self.assertNotIn("SIGINT to the agent on b", job.stderr)  # it was pressed on a


@needs_hosts
class Refusals(OnDaemons):
    def test_hosts_that_are_only_this_one_ran_beside_its_slots(self):
        self.begin("a")
        job = self.launch("mark=up", "a:9")
        self.assertNotEqual(job.wait(), 0)
        self.assertRegex(job.stderr, "needs 9 slots, and this node has 8 slots")
        job = self.ends(self.launch("mark=up", "a:2"), 0)
        record, = self.jobs("a")
        self.assertEqual((record["slots"], record["state"]), (2, "succeeded"))
        self.ctl("drain", "a", "--reason", "new disks")
        self.assertNotEqual(self.launch("mark=up", "a:1").wait(), 0)
        self.assertIn("new disks", self.last.stderr)

    def test_a_working_folder_that_was_removed_was_no_absolute_path(self):
        self.begin("a b")
        gone = 'mkdir gone; cd gone; rmdir ../gone; exec "$@"'
        job = self.job(f"--hosts a,b {FLAGS}", "mark=up", wrap=[*self.at("a"), "sh", "-c", gone, "sh"], env={"ACC_AGENT_SOCKET": self.nodes["a"].path})
        self.assertEqual(job.wait(), 1, job.stderr)
        self.assertEqual(job.stderr.count("the working directory was removed"), 1, job.stderr)
        self.assertNotIn("must be absolute", job.stderr)

    def refused(self, words="mark=up", hosts="a:1,b:1,c:1", within=15.0, **options):
        job = self.launch(words, hosts, **options)
        self.assertEqual(job.wait(30), 1, job.stderr)
        self.assertLess(job.seconds, within * SLACK, job.stderr)
        self.assertEqual(job.events("up"), [])
        self.nothing_left(job)
        for host in self.nodes:
            self.assertEqual([one for one in self.jobs(host) if one["name"].startswith("hosts-")], [], host)
        return job.stderr

    def trial_only(self, name, otherwise):
        """An acc-launch that checks, and does something else when it shall run."""
        path = os.path.join(self.folder, name)
        write(path, f'#!/bin/sh\ncase " $* " in *" --print_plan "*) exec {ACC} "$@";; esac\n{otherwise}\n', 0o755)
        return path

    def test_a_part_that_dies_before_acc_launch_begins_is_told_and_where_its_log_is(self):
        self.begin("a")
        self.nodes["b"] = self.daemon("b", "--launch", self.trial_only("launch", "exit 77"))
        job = self.launch("mark=up", "a:1,b:1", flags="--join_timeout 6s")
        self.assertNotEqual(job.wait(60), 0, job.stderr)
        self.assertRegex(job.stderr, r"acc-launch: b: its job (\S+) failed: acc-launch exited with code 77 before it began; what it wrote: acc-ctl logs --node b \1")
        self.nothing_left(job)

    def test_a_detached_part_that_could_not_start_said_its_exit_code_alone(self):
        self.begin("a")
        self.nodes["b"] = self.daemon("b", "--launch", self.trial_only("launch", f'ulimit -n 16; exec {ACC} "$@"'))
        job = self.launch("mark=up", "a:1,b:1", "--detach --join_timeout 6s")
        self.assertEqual(job.wait(60), 71, job.stderr)
        self.assertRegex(job.stderr, r"acc-launch: b: its job \S+ failed: exit code 71: .*descriptors.*; what it wrote: acc-ctl logs --node b ")
        self.nothing_left(job)

    def test_a_submitted_job_whose_acc_launch_cannot_be_executed_is_told(self):
        broken = self.trial_only("launch", "exit 77")
        self.nodes = {"a": self.daemon("a", "--launch", broken)}
        for mode, code, why in ((0o755, 77, "acc-launch exited with code 77 before it began"), (0o644, 126, "execute '.*/launch': Permission denied")):
            os.chmod(broken, mode)
            done = subprocess.run([*self.at("a"), CTL, "--socket", self.nodes["a"].path, "submit", "--", "--cpu", "--num_processes", "1", "--no_python", "true"],
                                  capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60 * SLACK)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertRegex(done.stderr, rf"acc-ctl: (\S+) failed: {why}.*; what it wrote: acc-ctl logs \1")

    def test_a_missing_script_and_a_full_node_are_named_in_one_message(self):
        self.begin("a b")
        self.nodes["c"] = self.daemon("c", "--slots", "1")
        self.submit(self.nodes["c"], "exec sleep 600")
        folder = self.folder + "/work"
        hidden = self.folder + "/hidden"
        for path in (folder, hidden):
            os.mkdir(path, 0o777)
            os.chmod(path, 0o777)
        write(folder + "/train.py", "print('hello')\n")
        self.nodes["b"].process.kill()
        self.nodes["b"].process.wait()
        write(hidden + "/events", "", 0o666)
        self.hosts.etc["b"][folder] = hidden  # another disk there
        self.nodes["b"].start().wait_ready()
        text = self.refused("", program=["train.py"], folder=folder)
        self.assertIn("2 of 3 hosts can't take part, so nothing was started:", text)
        self.assertRegex(text, r"\n  b: .*train\.py.*files aren't copied")
        self.assertRegex(text, r"\n  c: no room: it needs 1 slot, .*running here")

    def test_a_full_host_was_refused_and_wait_was_no_flag(self):
        self.begin("a b")
        self.nodes["c"] = self.daemon("c", "--slots", "1")
        blocker = self.submit(self.nodes["c"], "exec sleep 600")
        job = self.launch("mark=up", flags="--wait")
        until(lambda: "waiting for room on c (c: no room: it needs 1 slot, free: 0 slots" in job.stderr and "Ctrl-C ends the wait" in job.stderr, "the line", 20)
        self.assertEqual([one for host in "ab" for one in self.jobs(host)], [])  # nothing is held
        self.nodes["c"].ask("POST", f"/v1/jobs/{blocker}/stop", {"grace_s": 0})
        self.ends(job, 0, 60)
        self.assertEqual(len(job.events("up")), 3)
        self.assertEqual(job.stderr.count("waiting for room"), 1, job.stderr)

    def test_a_launch_that_waited_gave_up_when_a_daemon_restarted_or_a_host_was_drained(self):
        self.begin("a c")
        self.nodes["b"] = self.daemon("b", "--slots", "1")
        blocker = self.submit(self.nodes["b"], "exec sleep 600")
        job = self.launch("mark=up", flags="--wait")
        job.wait_stderr("waiting for room on b")
        for host, away in (("c", "and for c (c: c:29700"), ("a", "waiting for a, b, c (a: the acc-agent of this node doesn't answer")):
            self.nodes[host].process.kill()
            self.nodes[host].process.wait()
            until(lambda: away in job.stderr, "the line", 40)
            self.nodes[host].start().wait_ready()
        self.ctl("drain", "c", "--reason", "new disks", job=job)
        until(lambda: "and for c (c: this node is drained: new disks)" in job.stderr, "the line", 40)
        self.nodes["b"].ask("POST", f"/v1/jobs/{blocker}/stop", {"grace_s": 0})
        until(lambda: "waiting for c (c: this node is drained" in job.stderr, "the line", 40)
        self.ctl("undrain", "c", job=job)
        self.ends(job, 0, 60)
        self.assertEqual(len(job.events("up")), 3)

    def test_ctrl_c_ends_the_wait_for_a_full_host(self):
        self.begin("a")
        self.nodes["b"] = self.daemon("b", "--slots", "1")
        self.submit(self.nodes["b"], "exec sleep 600")
        job = self.launch("mark=up", "a:1,b:1", "--wait")
        until(lambda: "waiting for room on b" in job.stderr, "the line", 20)
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(20), 130, job.stderr)
        self.assertIn("stopped by SIGINT before anything was started", job.stderr)
        self.assertEqual(job.events("up"), [])

    def test_launches_that_need_each_others_hosts_all_run(self):
        """Each host has room for one of them."""
        self.nodes = {host: self.daemon(host, "--slots", "1") for host in "ab"}
        jobs = [self.launch("mark=up after=300ms exit=0", hosts, "--wait") for hosts in ("a:1,b:1", "b:1,a:1", "a:1,b:1")]
        for job in jobs:
            self.assertEqual(job.wait(120), 0, job.stderr)
            self.assertEqual(len(job.events("up")), 2)

    def test_what_hosts_lack_is_named_for_all_in_one_message(self):
        self.begin("a")
        self.daemon("c", secret=self.make_secret("other"))
        text = self.refused(hosts="a,b,c,nowhere")
        self.assertIn("3 of 4 hosts can't take part", text)
        self.assertRegex(text, r"\n  b: b:29700 .*connection refused: no acc-agent listens there")
        self.assertRegex(text, r"\n  c: c:29700 .*authentication failed: has it another secret")
        self.assertRegex(text, r"\n  nowhere: the host name 'nowhere' is not known here")

    def test_a_user_that_a_host_lacks_is_named(self):
        self.begin("a b")
        write(self.hosts.etc["b"]["/etc/passwd"], "root:x:0:0::/root:/bin/sh\n")
        text = self.refused(hosts="a,b", user=ALICE)
        self.assertRegex(text, r"\n  b: no such user: 'alice' isn't known on b: make the user there")

    def test_a_drained_node_says_why(self):
        self.begin("a b")
        self.ctl_root("drain", "--reason", "new disks")
        self.assertRegex(self.refused(hosts="a,b"), r"\n  a: this node is drained: new disks")

    def ctl_root(self, *words):
        subprocess.run([*self.at("a"), CTL, "--socket", self.nodes["a"].path, *words], check=True, capture_output=True)

    def test_a_host_that_does_not_answer_is_named_within_seconds(self):
        self.begin("a b")
        self.hosts.partition("b")
        self.assertRegex(self.refused(hosts="a,b"), r"\n  b: no answer from b:29700")

    def test_without_a_daemon_both_cures_are_named(self):
        self.nodes = {}
        job = self.job(f"--hosts a,b {FLAGS}", "mark=up", wrap=self.at("a"), env={"ACC_AGENT_SOCKET": self.folder + "/none"})
        self.assertEqual(job.wait(), 1, job.stderr)  # as a daemon of another host that is down: 2 is final for schedulers
        self.assertRegex(job.stderr, r"b is another machine, and no acc-agent answers here that could reach it \(.*none.*\): start it on all hosts "
                                     r"\(acc-agent --listen 29700, .*\), or add --ssh")


@needs_hosts
class Detached(OnDaemons):
    def detached(self, words="mark=up hold", hosts="a:1,b:1,c:1", count=3, **options):
        self.begin(self.names_of(hosts))
        job = self.launch(words, hosts, f"--detach {options.pop('flags', '')}", **options)
        self.assertEqual(job.wait(), 0, job.stderr)
        self.id = job.stdout.strip()
        self.assertRegex(job.stdout, r"^hosts-[a-z0-9]+\n$")
        if count:
            until(lambda: len(job.events("up")) >= count, "the workers", 20)
        return job

    def names_of(self, hosts):
        return " ".join(host.split(":")[0] for host in hosts.split(","))

    def test_workers_that_each_node_counts_itself_took_one_slot_and_logs_of_a_rank_were_anothers(self):
        cores = len(os.sched_getaffinity(0))
        if not 1 < cores <= 8:
            self.skipTest(f"{cores} cores: the nodes have 8 slots")
        self.detached(" ".join(f"rank={rank} out=of{rank} any" for rank in range(2 * cores)) + " mark=up hold", "a,b", 2 * cores, flags="--nproc_per_node cpu")
        for host in "ab":
            self.assertEqual([job["slots"] for job in self.jobs(host)], [cores])
        for rank in (0, 1, cores, 2 * cores - 1):
            # A worker marks itself when its line is in a pipe, and its agent may not have read that.
            until(lambda: self.ctl("logs", "--rank", str(rank), self.id) == f"of{rank}\n", f"the line of rank {rank}")
        self.ctl("stop", self.id)
        self.nothing_left(self.last)

    def test_a_stop_at_once_left_the_nodes_that_had_not_joined_yet(self):
        for _ in range(3):
            job = self.detached(hosts="a:1,b:1", count=0)
            self.ctl("stop", self.id)
            self.nothing_left(job)

    def test_the_log_of_a_rank_of_the_second_node_was_looked_for_on_the_first(self):
        job = self.detached("rank=2 out=two any rank=1 out=one any after=1s mark=done", hosts="a:2,b:1", count=0)
        until(lambda: len(job.events("done")) == 3, "the workers", 20)
        self.nothing_left(job)  # their lines are in the files by then
        self.assertEqual(self.ctl("logs", "--rank", "2", self.id), "two\n")
        self.assertEqual(self.ctl("logs", "-f", "--rank", "2", self.id), "two\n")
        self.assertEqual(self.ctl("logs", "--rank", "1", self.id), "one\n")
        self.ctl("logs", "--rank", "3", self.id, code=3)
        self.ctl("logs", "-f", "--since", "1m", self.id, code=2)

    def test_without_its_service_nothing_was_said_to_run(self):
        self.detached(hosts="a:1,b:1", count=2)
        self.nodes["a"].stop()
        for words in (["stop"], ["logs"], ["logs", "-f"], ["attach"], ["stacks"], ["rm"], ["restart"]):
            self.ctl(*words, self.id, code=4)
        self.ctl("ps", code=4)
        self.nodes["a"].start()
        until(lambda: os.path.exists(self.nodes["a"].path), "the service", 10)
        self.ctl("stop", self.id)

    def with_live(self):
        """Alice's job as `status` has it, once the agents of all parts answer: one that stands still for 2 s is left out."""
        def all_answer():
            shown = json.loads(self.ctl("status", self.id, "--json", user=ALICE))
            return shown if all(part.get("live") for part in shown["parts"]) else None
        return until(all_answer, "an answer of all agents")

    def test_a_detached_job_is_seen_steered_and_stopped_from_here(self):
        job = self.detached("note=USR1 on=TERM:0 mark=up hold", user=ALICE)
        until(lambda: not processes_with(f"--launch={self.id}"), "the end of what launched it")
        record = f"{job.folder}/.local/state/acc/launches/{self.id}.json"
        self.assertEqual(os.stat(record).st_mode & 0o777, 0o600)
        rows = json.loads(self.ctl("ps", "--json", user=ALICE))["jobs"]
        self.assertEqual([(row["id"], row["state"], row["slots"]) for row in rows], [(self.id, "running", 3)])
        table = self.ctl("status", self.id, user=ALICE)
        for host in "abc":
            self.assertRegex(table, rf"(?m)^{host} +running")
        shown = self.with_live()  # it said nothing of the workers
        self.assertEqual([[worker["rank"] for worker in part["live"]["workers"]] for part in shown["parts"]], [[0], [1], [2]])
        self.ctl("signal", "USR1", self.id, user=ALICE)
        until(lambda: len(job.events("got_SIGUSR1")) == 3, "the signal")
        self.ctl("restart", self.id, user=ALICE)
        until(lambda: len(job.events("up")) == 6, "the workers anew", 30)
        shown = self.with_live()
        self.assertEqual([part["live"]["restarts"] for part in shown["parts"]], [1] * 3)  # it wasn't counted
        self.ctl("stop", self.id[:12], user=ALICE)
        self.nothing_left(job)
        part = self.jobs("a")[0]["id"]
        refused = self.nodes["a"].ask("POST", f"/v1/jobs/{part}/restart")
        self.assertEqual(refused.status, 409, refused.body)
        self.assertIn("acc-launch --hosts starts it anew on all of them", refused.json["error"])
        self.assertEqual(len(job.events("got_SIGUSR1")), 3)
        state = json.loads(self.ctl("status", self.id, "--json", user=ALICE))
        # That of the others was "failed" with 143: their daemons weren't asked.
        self.assertEqual([part["state"] for part in state["parts"]], ["stopped"] * 3)
        self.ctl("rm", self.id, user=ALICE)
        self.assertFalse(os.path.exists(record))

    def test_rm_removed_the_parts_of_the_nodes_that_answered(self):
        job = self.detached("mark=up", "a:1,b:1", 2)
        self.nothing_left(job)
        self.nodes["b"].stop()
        self.ctl("rm", self.id, code=4)
        self.assertEqual(len(self.jobs("a")), 1)
        self.nodes["b"].start().wait_ready()
        self.ctl("rm", self.id)
        self.assertEqual((self.jobs("a"), self.jobs("b")), ([], []))

    def test_rm_could_not_forget_a_job_of_which_a_node_was_gone_for_good(self):
        job = self.detached("mark=up", "a:1,b:1", 2)
        self.nothing_left(job)
        self.nodes["b"].stop()
        self.ctl("rm", self.id, code=4)
        self.assertEqual(len(self.jobs("a")), 1)
        self.ctl("rm", "--force", self.id)
        self.assertEqual(self.jobs("a"), [])
        self.assertNotIn(self.id, self.ctl("ps"))

    def test_a_list_of_jobs_waited_for_seconds_for_a_node_without_network(self):
        job = self.detached("mark=up hold", "a:1,b:1", 2)
        self.hosts.partition("b")
        taken = []
        while len(taken) < 4 and not any(took < 2.5 for took in taken):  # one second, and what a busy machine adds; it was three
            begun = time.monotonic()
            self.assertIn(self.id, self.ctl("ps"))
            taken.append(time.monotonic() - begun)
        self.assertLess(min(taken), 2.5 * SLACK, taken)
        self.hosts.heal()
        self.ctl("stop", "--grace", "1", self.id)
        self.nothing_left(job, 20)

    def test_a_job_that_is_too_large_for_the_node_was_taken_for_a_wrong_command_line(self):
        self.nodes = {"a": self.daemon("a", "--slots", "2")}
        done = subprocess.run([*self.at("a"), CTL, "--socket", self.nodes["a"].path, "submit", "--", "--cpu", "--num_processes", "4", "--no_python", "true"],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60 * SLACK)
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("it needs 4 slots, and this node has 2 slots in all", done.stderr)

    def test_logs_of_all_nodes_are_read_and_attach_ends_as_the_job(self):
        go = self.folder + "/go"
        script = self.folder + "/waits.py"
        write(script, f"import os, time\nprint('early', flush=True)\nwhile not os.path.exists('{go}'):\n    time.sleep(0.01)\n"
              "print('late', flush=True)\n"
              # The end of rank 1 stops rank 0, which is to have said all by then.
              f"if os.environ['RANK'] == '0': open('{go}0', 'w').close()\n"
              f"while not os.path.exists('{go}0'): time.sleep(0.01)\n"
              "raise SystemExit(5 * int(os.environ['RANK']))\n")
        job = self.detached("", "a:1,b:1", 0, program=[script])
        attached = subprocess.Popen([*self.at("a"), CTL, "attach", "--all", self.id], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                    env={**os.environ, "ACC_AGENT_SOCKET": self.nodes["a"].path, "HOME": job.folder})
        self.addCleanup(lambda: attached.poll() is None and attached.kill())
        seen = [attached.stdout.readline() for _ in range(2)]
        self.assertEqual(self.plain("".join(seen)), "early\n" * 2)
        write(go, "")
        out, err = attached.communicate(timeout=30 * PATIENCE)
        self.assertEqual((attached.returncode, self.plain(out)), (5, "late\n" * 2), err)
        self.assertEqual(self.plain(self.ctl("logs", "--stdout", self.id)), "early\nlate\n" * 2)
        # attach ends with the agents' last words; the daemons note the end when the guardians have ended, too.
        # Jobs of other tests, of this user, are listed too.
        listed = lambda: next(job for job in json.loads(self.ctl("ps", "--json"))["jobs"] if job["id"].startswith(self.id))
        until(lambda: listed()["exit_code"] is not None, "the job's end in the list")
        self.assertEqual(listed()["exit_code"], 5, f"{listed()}\n{err}")

    def test_the_log_of_a_rank_ended_when_the_daemon_of_its_node_was_restarted(self):
        go = self.folder + "/go"
        script = self.folder + "/waits.py"
        write(script, f"import os, time\nprint('early', flush=True)\nwhile not os.path.exists('{go}'):\n    time.sleep(0.01)\nprint('late', flush=True)\n")
        job = self.detached("", "a:1,b:1", 0, program=[script])
        follows = subprocess.Popen([*self.at("a"), CTL, "logs", "-f", "--rank", "1", self.id], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "ACC_AGENT_SOCKET": self.nodes["a"].path, "HOME": job.folder})
        self.addCleanup(lambda: follows.poll() is None and follows.kill())
        self.assertEqual(self.plain(follows.stdout.readline()), "early\n")
        self.nodes["b"].process.kill()
        self.nodes["b"].process.wait()
        self.assertIn("trying again", follows.stderr.readline())
        self.nodes["b"].start().wait_ready()
        write(go, "")
        out, err = follows.communicate(timeout=60 * PATIENCE)
        self.assertEqual((follows.returncode, self.plain(out)), (0, "late\n"), err)

    def test_a_node_whose_daemon_was_restarted_as_attach_began_was_missing_for_the_whole_job(self):
        go = self.folder + "/go"
        script = self.folder + "/waits.py"
        write(script, f"import os, time\nprint('early', flush=True)\nwhile not os.path.exists('{go}'):\n    time.sleep(0.01)\nprint('late', flush=True)\n")
        self.detached("", "a:1,b:1", 0, program=[script])
        until(lambda: self.plain(self.ctl("logs", "--stdout", self.id)) == "early\n" * 2, "both workers' lines")
        self.nodes["b"].process.kill()
        self.nodes["b"].process.wait()
        followers = [self.follows("attach"), self.follows("logs", "-f")]
        until(lambda: len(processes_with("--job=" + self.id)) == 4, "the followers")
        self.nodes["b"].start().wait_ready()
        until(lambda: self.state() == "running", "an answer of both")
        write(go, "")
        for follower, of_a in zip(followers, ("late\n", "early\nlate\n")):
            out, err = follower.communicate(timeout=60 * PATIENCE)
            lines = {rank: "".join(line + "\n" for line in out.splitlines() if line.startswith(f"[default{rank}]:")) for rank in (0, 1)}
            self.assertEqual((follower.returncode, self.plain(lines[0]), self.plain(lines[1])), (0, of_a, "early\nlate\n"), err)
            self.assertRegex(err, r"^acc-ctl: b: b:29700 .* connection refused.*\n$")

    def test_attach_failed_for_a_job_that_succeeded_without_a_node_that_was_lost(self):
        folder = self.folder + "/work"
        os.mkdir(folder)
        script = self.folder + "/elastic.py"
        write(script, "import os, time\nrank, again = os.environ['RANK'], os.environ['TORCHELASTIC_RESTART_COUNT']\n"
              f"open('{folder}/' + again + rank, 'w').close()\nwhile again == '0' or not os.path.exists('{folder}/go'):\n    time.sleep(0.01)\n")
        self.detached("", count=0, program=[script], flags="--nnodes 2:3 --max_restarts 2")
        until(lambda: len(os.listdir(folder)) == 3, "the workers", 20)
        self.hosts.power_off("c")
        until(lambda: len(os.listdir(folder)) == 5, "the next round", 60)
        attached = self.follows("attach")
        until(lambda: len(processes_with("--job=" + self.id)) == 3, "the followers")
        write(folder + "/go", "")
        out, err = attached.communicate(timeout=120 * PATIENCE)
        self.assertEqual(attached.returncode, 0, err)
        self.assertRegex(err, "output of c may be missing here .* it is there: acc-ctl --node c logs ")

    def test_attach_waited_for_a_lost_node_whose_job_had_failed_and_told_that_it_goes_on(self):
        self.detached("mark=up hold", "a:1,b:1", 2)
        self.hosts.power_off("b")
        until(lambda: self.state() == "failed", "the job's end", 60)
        attached = self.follows("attach")
        _, err = attached.communicate(timeout=50 * PATIENCE)
        self.assertEqual(attached.returncode, 69, err)
        self.assertNotIn("goes on", err)
        self.assertIn("the job has ended: its part has, too, or ends by itself", err)

    def test_ctrl_c_ends_the_reading_of_logs_and_not_the_job(self):
        job = self.detached("ignore=INT ignore=TERM mark=up hold", "a:1,b:1", 2)
        looks = subprocess.Popen([*self.at("a"), CTL, "logs", "-f", self.id], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                 env={**os.environ, "ACC_AGENT_SOCKET": self.nodes["a"].path, "HOME": job.folder})
        until(lambda: len(processes_with("--job=" + self.id)) == 2, "the followers")
        looks.send_signal(signal.SIGINT)
        looks.communicate(timeout=20 * PATIENCE)
        self.assertEqual(looks.returncode, 130)
        self.assertIn("running", [job["state"] for job in json.loads(self.ctl("ps", "--json"))["jobs"] if job["id"].startswith(self.id)])
        self.ctl("stop", "--grace", "1", self.id)
        self.nothing_left(job, 20)

    def test_with_a_shared_home_the_part_of_the_first_node_was_gone_on_all_others(self):
        job = self.detached("out=first mark=up hold", "a:1,b:1", 2)
        self.nodes["c"] = self.daemon("c")
        # A worker marks itself when its line is in a pipe, and its agent may not have read that.
        until(lambda: self.plain(self.ctl("logs", "--stdout", self.id)) == "first\n" * 2, "both workers' lines")
        for host in "bc":  # each node's own daemon is at the same path, as usual
            self.hosts.etc[host][self.nodes["a"].path] = self.nodes[host].path
        for host in "abc":
            shown = json.loads(self.ctl("status", self.id, "--json", host=host))
            self.assertEqual((shown["slots"], [part["state"] for part in shown["parts"]]), (2, ["running"] * 2), host)
            self.assertEqual(self.plain(self.ctl("logs", "--stdout", self.id, host=host)), "first\n" * 2)
        self.nodes["a"].process.kill()  # its socket stays, over which the others' are mounted
        self.nodes["a"].process.wait()
        self.assertRegex(self.ctl("status", self.id, host="c"), r"(?m)^a +unknown")
        self.ctl("rm", self.id, host="c", code=5)  # b's part runs
        self.nodes["a"].start().wait_ready()
        self.ctl("stop", self.id, host="c")
        self.nothing_left(job)
        self.ctl("rm", self.id, host="c")
        self.assertEqual((self.jobs("a"), self.jobs("b")), ([], []))

    def follows(self, *words, host="a", **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
        process = subprocess.Popen([*self.at(host), CTL, *words, self.id], text=True, **options,
                                   env={**os.environ, "ACC_AGENT_SOCKET": self.nodes["a"].path, "HOME": self.last.folder})
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def state(self):
        return json.loads(self.ctl("status", self.id, "--json"))["state"]

    def test_a_terminal_that_closed_during_attach_stopped_the_job(self):
        job = self.detached("note=TERM note=HUP out=first mark=up hold", "a:1,b:1", 2)
        master, slave = pty.openpty()
        attached = self.follows("attach", "--all", stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        seen = b""
        while b"first" not in seen:
            seen += os.read(master, 4096)
        os.close(master)
        self.assertEqual(attached.wait(20 * PATIENCE), 128 + signal.SIGHUP)
        for signo in (signal.SIGHUP, signal.SIGTERM):
            attached = self.follows("attach", "--all")
            self.assertEqual(self.plain(attached.stdout.readline()), "first\n")
            attached.send_signal(signo)
            _, err = attached.communicate(timeout=20 * PATIENCE)
            self.assertEqual((attached.returncode, err), (128 + signo, f"acc-ctl: left {self.id} alone: acc-ctl attach {self.id}\n"))
        self.assertEqual(self.state(), "running")
        self.assertEqual(job.events("got_SIGTERM") + job.events("got_SIGHUP"), [])
        self.ctl("stop", self.id)
        self.nothing_left(job)

    def test_ctrl_c_during_attach_promised_to_hurry_and_left_the_job(self):
        # The grace is to last until the second Ctrl-C: when the job has ended, attach ends with its code.
        job = self.detached("ignore=TERM ignore=INT out=first mark=up hold", "a:1,b:1", 2, flags="--grace 8s")
        attached = self.follows("attach", "--all")
        self.assertEqual(self.plain(attached.stdout.readline()), "first\n")
        attached.send_signal(signal.SIGINT)
        self.assertEqual(attached.stderr.readline(), f"acc-ctl: asked {self.id} to stop; Ctrl-C again leaves it alone\n")
        attached.send_signal(signal.SIGINT)
        _, err = attached.communicate(timeout=20 * PATIENCE)
        self.assertEqual(attached.returncode, 130)
        self.assertIn(f"acc-ctl: left {self.id} alone: acc-ctl attach {self.id}\n", err)
        self.assertNotIn("to hurry", err)
        self.nothing_left(job, 20)

    def test_a_follower_went_on_without_its_reader_until_the_launch_ended(self):
        script = self.folder + "/talks.py"
        write(script, "import time\nprint('first', flush=True)\nwhile True:\n    time.sleep(0.02)\n    print('more', flush=True)\n")
        silent = self.folder + "/silent.py"
        write(silent, "import time\nprint('first', flush=True)\ntime.sleep(600)\n")
        self.begin("a b")
        for program, words in ((script, ["logs", "-f"]), (script, ["attach", "--all"]), (silent, ["logs", "-f"])):
            job = self.launch("", "a:1,b:1", "--detach", program=[program])
            self.assertEqual(job.wait(), 0, job.stderr)
            self.id = job.stdout.strip()
            looks = self.follows(*words)
            self.assertEqual(self.plain(looks.stdout.readline()), "first\n")
            looks.stdout.close()
            self.assertEqual((looks.wait(20 * PATIENCE), looks.stderr.read()), (0, ""))
            self.assertEqual(self.state(), "running")
            self.ctl("stop", "--grace", "0", self.id)
            self.nothing_left(job)

    def test_other_nodes_are_shown_and_drained_by_name(self):
        self.nodes = {"a": self.daemon("a", "--nodes", "a,b,nowhere"), "b": self.daemon("b")}
        self.last = Job("--version", "", wrap=())
        self.addCleanup(self.last.close)
        self.last.wait()
        nodes = {row["node"]: row for row in json.loads(self.ctl("nodes", "--json"))["nodes"]}
        self.assertEqual((nodes["b"]["ok"], nodes["nowhere"]["code"]), (True, "unknown_host"))
        self.ctl("drain", "b", "--reason", "new disks")
        self.assertIn("new disks", self.ctl("nodes"))
        self.ctl("undrain", "b")
        self.assertNotIn("new disks", self.ctl("node", "--node", "b"))
        id = self.submit(self.nodes["b"], "exec sleep 600")
        self.assertIn(id, self.ctl("ps", "--node", "b"))
        self.ctl("stop", "--node", "b", id)
        self.nodes["b"].wait_ended(id)


if __name__ == "__main__":
    main()
