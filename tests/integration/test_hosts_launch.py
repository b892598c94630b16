"""One command runs a job on several hosts: --hosts with --launch_agent and --ssh."""
import contextlib, json, os, re, select, shutil, signal, socket, subprocess, sys, time, unittest

import harness
from harness import ACC, FAKE, PATIENCE, SLACK, Job, JobTest, free_port, main, processes_with, read, state_of, until, write
from hosts import NETNS, Hosts, needs_hosts, processes_in

# No test is about these: longer than a machine stands still now and then, and short enough for those that lose a host.
TIMES = f"--dead_after {6 * SLACK:.0f}s --lease {12 * SLACK:g}s --join_timeout 20s --last_call 5s --grace 2s --restart_delay 0"
FLAGS = f"--cpu --num_cpu_threads_per_process 1 {TIMES}"
SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")

# enter.sh ADDRESS LINE: runs LINE on that host, as ssh does: with an environment of its own, and as a process of its own.
ENTER = """#!/bin/sh
case $1 in
{cases}
*) echo "enter: there is no host $1" >&2; exit 9;;
esac
"""
# Shows the address a file system in which these paths are empty, or something else.
CASE = """{address}) {wrap} unshare --mount env -i PATH="$PATH" FAKE_EVENTS={events} sh -c '{binds}exec sh -c "$1"' sh "$2"; exit $?;;"""


def rss_kib(pid):
    found = re.search(r"VmRSS:\s+(\d+)", read(f"/proc/{pid}/status"))
    return int(found[1]) if found else 0


class OnHosts(JobTest):
    names = "a b c"

    def setUp(self):
        self.hosts = Hosts(self.names)
        self.addCleanup(self.hosts.close)
        self.folder = self.hosts.folder
        self.events = os.path.join(self.folder, "events")

    def agent(self, hide=None, replace=None):
        """The program for --launch_agent. hide, replace: what a host lacks, {"b": path}, or has instead, {"b": (path, other)}."""
        cases = []
        for name in self.hosts.names:
            binds = ""
            if name in (hide or {}):
                binds += f"mount -t tmpfs none {hide[name]} && "
            if name in (replace or {}):
                path, other = replace[name]
                binds += f"mount --bind {other} {path} && "
            wrap = " ".join(f"'{word}'" for word in self.hosts.wrap(name))
            cases.append(CASE.format(address=self.hosts.address(name), wrap=wrap, binds=binds, events=self.events))
        path = os.path.join(self.folder, f"enter{len(os.listdir(self.folder))}.sh")
        write(path, ENTER.format(cases="\n".join(cases)), 0o755)
        return path

    def list(self, slots="1 1 1"):
        """As --hosts: all hosts, with these slots; 0: without."""
        return ",".join(self.hosts.address(name) + (f":{n}" if n != "0" else "") for name, n in zip(self.hosts.names, slots.split()))

    def launch(self, words, slots="1 1 1", flags="", agent=None, **options):
        job = self.job(f"--hosts {self.list(slots)} --launch_agent {agent or self.agent()} {FLAGS} {flags}", words, **options)
        job.events_file = self.events
        self.addCleanup(lambda: [self.hosts.end_processes(name) for name in self.hosts.names])
        return job

    def ends(self, job, code, deadline=20.0):
        """The job ends with this code, and nothing of it is left on any host."""
        self.assertEqual(job.wait(deadline), code, job.stderr)
        self.nothing_left(job)
        return job

    def nothing_left(self, job, within=5.0):
        until(lambda: not job.all_alive(), f"the end of {job.all_alive()}", within)
        for name in self.hosts.names:
            until(lambda: not self.hosts.processes(name), f"the end of all on {name}: {self.hosts.processes(name)}", within)


@needs_hosts
class Jobs(OnHosts):
    def test_what_the_program_of_launch_agent_ignores_is_not_ignored_by_the_workers(self):
        script = self.folder + "/shows"
        write(script, "#!/bin/sh\nexec grep SigIgn /proc/self/status\n", 0o755)
        agent = self.agent()
        shows = self.folder + "/agent.sh"
        write(shows, f'#!/bin/sh\ngrep SigIgn /proc/self/status >> {self.folder}/ignored\nexec {agent} "$@"\n', 0o755)
        job = self.ends(self.launch("", agent=shows, program=["--no_python", script]), 0)
        self.assertEqual(job.stdout, "SigIgn:\t0000000000000000\n" * 3)
        self.assertEqual(read(self.folder + "/ignored"), "SigIgn:\t0000000000004a07\n" * 3)  # TERM, USR2, USR1, QUIT, INT, HUP

    def test_hosts_with_different_numbers_of_workers_run_one_job(self):
        job = self.ends(self.launch("mark=up", "1 3 2"), 0)
        self.assertEqual(sorted(int(rank) for _, rank, _, _ in job.events("up")), [0, 1, 2, 3, 4, 5])
        self.assertEqual(job.stderr, "")

    def test_ranks_follow_the_order_of_the_hosts_and_output_comes_back_apart(self):
        job = self.ends(self.launch("rank=0 out=zero any rank=1 out=one any rank=2 err=two", flags="--tag_output"), 0)
        a, b, c = (self.hosts.address(name) for name in "abc")
        self.assertEqual(sorted(job.stdout.splitlines()), sorted([f"{a}: zero", f"{b}: one"]))
        self.assertEqual(job.stderr.splitlines(), [f"{c}: two"])

    def test_events_of_all_hosts_are_one_file_here(self):
        job = self.ends(self.launch("mark=up out=hello rank=1 attempt=0 exit=3 any attempt=0 hold any", flags="--max_restarts 1 --events all.jsonl"), 0)
        with open(os.path.join(job.folder, "all.jsonl")) as f:
            events = [json.loads(line) for line in f]
        by_node = {name: [e for e in events if e["node"] == name] for name in self.hosts.names}
        self.assertEqual(sum(map(len, by_node.values())), len(events))
        for name, own in by_node.items():
            self.assertEqual([e["seq"] for e in own], list(range(len(own))), name)
            self.assertEqual((own[0]["event"], own[-1]["event"]), ("job_started", "job_ended"))
        self.assertEqual([(e["node"], e["rank"]) for e in events if e["event"] == "failure"], [("b", 1)])
        self.assertNotIn("acc-node", job.stderr)

    def test_a_command_line_of_100_kilobytes_is_cut_in_the_events_of_all_hosts(self):
        script = self.folder + "/counts"
        write(script, "#!/bin/sh\necho $#\n", 0o755)
        names = " ".join(f"/data/set/part-{i:06d}-of-100000.parquet" for i in range(2600))
        job = self.ends(self.launch(names, flags="--events all.jsonl", program=["--no_python", script]), 0)
        self.assertEqual((job.stdout, job.stderr), ("2601\n" * 3, ""))
        with open(os.path.join(job.folder, "all.jsonl")) as f:
            started = [e for e in map(json.loads, f) if e["event"] == "job_started"]
        self.assertEqual(len(started), 3)
        for event in started:
            self.assertEqual(event["command"][0], script)
            self.assertTrue(event["command"][-1].endswith("…"))
            self.assertLess(sum(map(len, event["command"])), 9000)

    def test_a_count_for_the_whole_job_is_shared_among_the_hosts(self):
        job = self.ends(self.launch("mark=up", "0 0 0", "--num_processes 4"), 0)
        self.assertEqual(len(job.events("up")), 4)

    def test_the_exit_code_is_the_jobs_and_the_report_comes_once(self):
        for failing in (0, 2):
            job = self.ends(self.launch(f"any rank={failing} exit=7 any hold"), 7)
            self.assertEqual(len(re.findall("job failed", job.stderr)), 1, job.stderr)
            self.assertIn(f"rank {failing} ", job.stderr)

    def test_the_report_of_a_job_that_ran_said_not_started_where_the_hosts_share_a_folder(self):
        for word, code, verdict in (("exit=0", 0, "succeeded"), ("any rank=1 exit=3 any hold", 3, "failed")):
            job = self.launch(word, flags="--report report.json")
            self.ends(job, code)
            with open(os.path.join(job.folder, "report.json")) as f:
                report = json.load(f)
            self.assertEqual((report["verdict"], report["exit_code"]), (verdict, code))

    def test_a_lack_of_memory_on_another_host_was_not_told(self):
        root = "/sys/fs/cgroup/memory"
        if not os.access(root + "/memory.oom_control", os.W_OK) or harness.SANITIZED:
            self.skipTest("needs the v1 memory controller, and a launcher that fits into 64 MiB")
        group = f"{root}/acc-test-hosts-{os.getpid()}"
        os.mkdir(group)
        try:
            write(group + "/memory.limit_in_bytes", "64M")
            script = os.path.join(self.folder, "train.py")
            write(script, "import os, sys, time\nif os.environ['RANK'] != '1': time.sleep(1000)\npid, kept = os.fork(), []\n"
                  "while pid == 0: kept.append(bytearray(1 << 20))\nos.waitpid(pid, 0)\nsys.exit('a helper is gone')\n")
            enter = os.path.join(self.folder, "limited.sh")
            write(enter, f'#!/bin/sh\n[ "$1" = {self.hosts.address("b")} ] && echo $$ >{group}/cgroup.procs\nexec {self.agent()} "$@"\n', 0o755)
            job = self.ends(self.launch("", agent=enter, flags="--no_python", program=[sys.executable, script]), 1)
            self.assertIn("hint      out of memory: the kernel's OOM killer ended 1 process of the cgroup that this job is in on ", job.stderr)
        finally:
            until(lambda: not read(group + "/cgroup.procs"), "an empty cgroup")
            os.rmdir(group)

    def test_exit_code_255_is_a_workers_and_no_lost_connection(self):
        job = self.ends(self.launch("any rank=1 exit=255 any hold"), 255)
        self.assertNotIn("connection", job.stderr)

    def test_a_failed_round_is_restarted_on_all_hosts(self):
        job = self.ends(self.launch("mark=up rank=1 attempt=0 exit=3 any attempt=0 hold", flags="--max_restarts 1"), 0)
        # In the first round a worker may be stopped before it says a word.
        self.assertEqual(sorted(rank for _, rank, attempt, _ in job.events("up") if attempt == "1"), ["0", "1", "2"])
        self.assertEqual(len(re.findall("attempt 1: 3 nodes", job.stderr)), 1, job.stderr)

    def test_ctrl_c_stops_all_hosts_and_is_told_once(self):
        job = self.launch("note=INT mark=up hold", flags="--grace 6s")  # in which each is to say that it got it
        job.wait_events("up", 3)
        job.process.send_signal(signal.SIGINT)
        self.ends(job, 130)
        self.assertEqual(len(job.events("got_SIGINT")), 3)
        self.assertEqual(len(re.findall("got SIGINT", job.stderr)), 1, job.stderr)

    def test_sigterm_stops_all_hosts(self):
        job = self.launch("mark=up hold")
        job.wait_events("up", 3)
        job.process.send_signal(signal.SIGTERM)
        self.ends(job, 143)

    def test_a_second_ctrl_c_hurries_and_a_third_kills(self):
        job = self.launch("ignore=INT ignore=TERM mark=up hold", flags="--grace 60s")
        job.wait_events("up", 3)
        for answer in ("got SIGINT", "Ctrl-C again to kill", ""):
            job.process.send_signal(signal.SIGINT)
            job.wait_stderr(answer)  # two that are pending count as one
        self.ends(job, 130)

    def test_usr1_reaches_each_worker_once(self):
        job = self.launch("note=USR1 on=TERM:0 mark=up hold")
        job.wait_events("up", 3)
        job.process.send_signal(signal.SIGUSR1)
        job.wait_events("got_SIGUSR1", 3)
        job.process.send_signal(signal.SIGTERM)
        self.ends(job, 143)
        self.assertEqual(len(job.events("got_SIGUSR1")), 3)

    def test_workers_read_nothing_from_the_life_line(self):
        script = os.path.join(self.folder, "reads.py")
        write(script, "import os, sys\nprint(repr(sys.stdin.read()), os.readlink('/proc/self/fd/0'), sorted(os.listdir('/proc/self/fd'))[:4])\n")
        job = self.launch("", program=[script], env={"PYTHON_EXEC": sys.executable})
        self.ends(job, 0)
        self.assertEqual([line.split(" [")[0] for line in job.stdout.splitlines()], ["'' /dev/null"] * 3)

    def test_variables_and_the_working_directory_are_carried(self):
        script = os.path.join(self.folder, "shows.py")
        write(script, "import os\nprint(os.getcwd(), os.environ.get('HERE'), os.environ.get('TWO'), os.environ.get('OTHER'))\n")
        job = self.launch("", program=[script], flags="--env HERE", env={"HERE": "a b%\n'c'", "OTHER": "x"})
        self.ends(job, 0)
        # Two lines of each host: those of others may stand between them.
        self.assertEqual(sorted(job.stdout.splitlines()), sorted([f"{job.folder} a b%", "'c' None None"] * 3))


    def test_through_ssh_what_a_login_shell_says_is_not_the_jobs_output(self):
        places = os.path.join(self.folder, "programs")
        os.mkdir(places)
        # As ssh: options, the login, one command line; .bashrc and motd speak first.
        write(f"{places}/ssh", f"#!/bin/sh\necho \"$@\" >> {self.folder}/called\nfor word; do login=$line; line=$word; done\n"
              f"echo 'Welcome to this machine'; echo 'no profile' >&2\nexec {self.agent()} \"${{login#root@}}\" \"$line\"\n", 0o755)
        logins = ",".join(f"root@{self.hosts.address(name)}" for name in self.hosts.names)
        job = self.job(["--hosts", logins, "--ssh", "--ssh_options", "-p 22 -i 'a key'", *FLAGS.split()], "mark=up out=hello",
                       env={"PATH": f"{places}:{os.environ['PATH']}"})
        job.events_file = self.events
        self.ends(job, 0)
        self.assertEqual(job.stdout, "hello\n" * 3)
        self.assertEqual(job.stderr, "no profile\n" * 3)
        called = read(f"{self.folder}/called").splitlines()
        self.assertEqual(len(called), 3)
        self.assertTrue(called[0].startswith("-p 22 -i a key -T -x -o BatchMode=yes"), called[0])

    def test_eight_hosts_of_this_machine_run_one_job(self):
        job = self.job(f"--hosts 127.0.0.[1-8]:1 --main_process_port {free_port()} {FLAGS}", "mark=up")
        self.assertEqual(job.wait(60), 0, job.stderr)
        self.assertEqual(sorted(int(rank) for _, rank, _, _ in job.events("up")), list(range(8)))


@needs_hosts
class Ends(OnHosts):
    def started(self, words="mark=up hold", **options):
        job = self.launch(words, **options)
        job.wait_events("up", 3)
        return job

    def test_kill_of_the_local_guardian_leaves_nothing_on_any_host(self):
        job = self.started()
        os.kill(job.pid, signal.SIGKILL)
        job.wait()
        self.nothing_left(job)

    def test_kill_of_the_local_agent_leaves_nothing_on_any_host(self):
        job = self.started()
        os.kill(job.agent, signal.SIGKILL)
        self.ends(job, 70)

    def test_kill_of_both_leaves_nothing_on_any_host(self):
        job = self.started("ignore=TERM mark=up hold")
        agent = job.agent
        os.kill(job.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(agent, signal.SIGKILL)
        job.wait()
        self.nothing_left(job)

    def test_a_killed_connection_is_named_and_the_job_fails(self):
        job = self.started()
        b = self.hosts.address("b")
        transport = next(pid for pid in harness.children_of(job.agent) if b in processes_with(job.token).get(pid, "").split("--life_line")[0].split())
        os.kill(transport, signal.SIGKILL)
        code = job.wait(30)
        self.assertNotIn(code, (0, 255), job.stderr)
        self.assertIn(f"the connection to {b} was lost", job.stderr)
        self.nothing_left(job)

    def test_a_job_whose_first_host_is_lost_ends_with_a_word_about_it(self):
        job = self.started(flags="--dead_after 6s --lease 12s --join_timeout 12s")  # the lease ends before the patience of a stop
        a = self.hosts.address("a")
        transport = next(pid for pid in harness.children_of(job.agent) if a in processes_with(job.token).get(pid, "").split("--life_line")[0].split())
        os.kill(transport, signal.SIGKILL)
        self.assertNotEqual(job.wait(30), 0)
        self.assertIn(f"the connection to {a} was lost", job.stderr)
        self.assertRegex(job.stderr, r"job failed: node \S+ \(node rank 0\) lost")  # by the host to which the coordinator went
        self.assertEqual(job.stderr.count("job failed"), 1, job.stderr)
        self.assertRegex(job.stderr, rf"{re.escape(a)}, the first host, was lost; exit code \d+")
        self.nothing_left(job)

    def test_an_elastic_job_goes_on_without_a_host_whose_connection_was_killed(self):
        job = self.started(flags="--nnodes 2:3 --max_restarts 1")
        b = self.hosts.address("b")
        transport = next(pid for pid in harness.children_of(job.agent) if b in processes_with(job.token).get(pid, "").split("--life_line")[0].split())
        os.kill(transport, signal.SIGKILL)
        until(lambda: len([row for row in job.events("up") if row[2] == "1"]) == 2, f"the second round: {job.stderr}", 20)
        job.process.send_signal(signal.SIGTERM)
        self.ends(job, 143)

    def test_with_a_restart_left_a_killed_connection_is_no_reason_to_wait_for_ever(self):
        job = self.started(flags="--max_restarts 1 --join_timeout 12s")
        b = self.hosts.address("b")
        transport = next(pid for pid in harness.children_of(job.agent) if b in processes_with(job.token).get(pid, "").split("--life_line")[0].split())
        os.kill(transport, signal.SIGKILL)
        self.assertNotEqual(job.wait(30), 0)
        self.nothing_left(job)


@needs_hosts
class Refused(OnHosts):
    """What a host lacks is named within 5 s of a quiet machine, with the cure, and nothing stays running."""

    def refused(self, job, *patterns, code=1):
        job.wait(10)
        self.assertLess(job.seconds, 15 * SLACK)  # well before --join_timeout
        self.assertEqual(job.process.returncode, code, job.stderr)
        for pattern in patterns:
            self.assertRegex(job.stderr, pattern)
        self.assertEqual(job.events(), [])
        self.nothing_left(job)

    def test_a_missing_script_on_one_host(self):
        place = os.path.join(self.folder, "place")
        os.mkdir(place)
        write(f"{place}/train.py", "print('must not run')\n")
        job = self.launch("", program=[f"{place}/train.py"], agent=self.agent(hide={"b": place}))
        self.refused(job, "1 of 3 hosts can't take part", rf"  {self.hosts.address('b')}: cannot start '{place}/train.py'", "aren't copied")
        self.assertEqual(job.stdout, "")

    def test_a_missing_program_on_two_hosts_names_both_in_one_message(self):
        place = os.path.join(self.folder, "place")
        os.mkdir(place)
        shutil.copy(ACC, f"{place}/acc-launch")
        job = self.launch("mark=up", flags=f"--remote_launch {place}/acc-launch", agent=self.agent(hide={"b": place, "c": place}))
        self.refused(job, "2 of 3 hosts can't take part", f"  {self.hosts.address('b')}, {self.hosts.address('c')}: there is no acc-launch", "--remote_launch PATH")
        self.assertEqual(job.stderr.count("can't take part"), 1)

    def test_a_missing_working_directory(self):
        job = self.launch("mark=up", folder=None, agent=None)
        job.wait()
        place = os.path.join(self.folder, "deep")
        os.makedirs(f"{place}/work")
        os.remove(self.events)
        job = self.launch("mark=up", folder=f"{place}/work", agent=self.agent(hide={"c": place}))
        self.refused(job, rf"  {self.hosts.address('c')}: .*working directory '{place}/work'.*must be on all hosts")

    def test_another_version(self):
        other = os.path.join(self.folder, "other.sh")
        write(other, "#!/bin/sh\nwhile read -r word rest; do [ \"$word\" = prepare ] && printf '\\036acc-node %s prepared 9.9.9\\n' \"$rest\"; done\n", 0o755)
        mine = shutil.copy(ACC, os.path.join(self.folder, "acc-launch"))
        job = self.launch("mark=up", flags=f"--remote_launch {mine}", agent=self.agent(replace={"b": (mine, other)}))
        self.refused(job, rf"  {self.hosts.address('b')}: its acc-launch is version 9.9.9, this one is .*: install the same")

    def test_a_bad_value_is_told_once_for_all_hosts(self):
        job = self.launch("mark=up", flags="--dead_after 1ms")
        self.refused(job, "3 of 3 hosts", "dead_after: 1 ms is too short")
        self.assertEqual(job.stderr.count("too short"), 1)

    def test_hosts_that_the_transport_does_not_know_or_reach(self):
        job = self.job(f"--hosts 10.77.9.9,10.77.9.8 --launch_agent {self.agent()} {FLAGS}", "mark=up")
        job.events_file = self.events
        self.refused(job, "2 of 2 hosts", r"  10.77.9.9: enter\d?.*exited with code 9 before acc-launch answered \(enter: there is no host 10.77.9.9\)"
                     .replace(r"enter\d?.*exited", r".*exited"))

    def test_over_ssh_nothing_was_said_of_a_host_that_stopped_answering(self):
        relay = os.path.join(self.folder, "relay.sh")
        write(relay, f'#!/bin/bash\nexec {self.agent()} "$@" < <(echo $BASHPID > {self.folder}/relay.$1; exec cat)\n', 0o755)
        job = self.launch("mark=up hold", agent=relay)
        job.wait_events("up", 3, 20)
        host = self.hosts.address("b")
        cat = int(read(f"{self.folder}/relay.{host}"))
        os.kill(cat, signal.SIGSTOP)  # what we ask doesn't arrive any more
        until(lambda: f"acc-launch: warning: {host}: no answer for " in job.stderr, "the line", 40)
        os.kill(cat, signal.SIGCONT)
        until(lambda: f"acc-launch: {host} answers again" in job.stderr, "the end of the silence", 20)
        self.assertEqual(job.stderr.count(f"{host}: no answer for"), 1, job.stderr)
        job.process.send_signal(signal.SIGTERM)
        self.ends(job, 143)

    def test_a_silent_host_is_named_with_the_first_failure(self):
        silent = os.path.join(self.folder, "silent.sh")
        write(silent, "#!/bin/sh\nexec sleep 1000\n", 0o755)
        mine = shutil.copy(ACC, os.path.join(self.folder, "acc-launch"))
        other = os.path.join(self.folder, "gone")
        os.mkdir(other)
        job = self.launch("mark=up", flags=f"--remote_launch {mine}", agent=self.agent(hide={"c": self.folder}, replace={"b": (mine, silent)}))
        job.wait(20)
        self.assertEqual(job.process.returncode, 1, job.stderr)
        self.assertRegex(job.stderr, f"{self.hosts.address('b')}: no answer yet")
        self.nothing_left(job, 10)

    def test_ctrl_c_before_the_start_ends_at_once(self):
        silent = os.path.join(self.folder, "silent.sh")
        write(silent, "#!/bin/sh\necho here >> " + self.events + "\ncat > /dev/null\n", 0o755)
        mine = shutil.copy(ACC, os.path.join(self.folder, "acc-launch"))
        job = self.launch("mark=up", flags=f"--remote_launch {mine}", agent=self.agent(replace={"b": (mine, silent)}))
        until(lambda: os.path.exists(self.events), "the host")
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(10), 130, job.stderr)
        self.assertIn("before anything was started", job.stderr)
        self.nothing_left(job)


@needs_hosts
class Output(OnHosts):
    names = "a b"

    def test_no_line_of_many_is_lost_or_torn(self):
        lines = 50_000
        job = self.launch(f"lines={lines}", "2 2")
        self.ends(job, 0, 120)
        seen = {}
        for line in job.stdout.splitlines():
            self.assertRegex(line, r"^\d+ line \d+$|^\d+ \d+$|^\w+.*\d+$")
            seen[line] = seen.get(line, 0) + 1
        self.assertEqual(sum(seen.values()), 4 * lines)
        self.assertEqual(set(seen.values()), {4} if len(seen) == lines else {1})

    def test_a_stopped_reader_costs_bounded_memory_on_every_hop(self):
        reader, writer = os.pipe()
        script = os.path.join(self.folder, "talks.py")
        write(script, "import os\nopen(os.environ['FAKE_EVENTS'], 'a').write('up 0 0 1\\n')\nwhile True: print('x' * 4000)\n")
        job = self.launch("", "2 2", program=[script], stdout=writer)
        os.close(writer)
        self.addCleanup(os.close, reader)
        job.wait_events("up", 4)
        agent = job.agent
        mine = [pid for name in self.hosts.names for pid in self.hosts.processes(name) if "acc-launch" in read(f"/proc/{pid}/cmdline").split("\0")[0]]
        self.assertGreaterEqual(len(mine), 4)

        def stands_still():
            def written():
                return sum(int(re.search(r"wchar: (\d+)", read(f"/proc/{pid}/io"))[1]) for pid in mine)
            before = written()
            time.sleep(0.3)
            return written() - before < 4000  # heartbeats go on
        until(stands_still, "the workers' output to stop", 30)
        bound = (64 if not harness.SANITIZED else 256) << 10  # a sanitizer keeps a shadow, and what was freed for a while
        for pid in [agent, *mine]:
            self.assertLess(rss_kib(pid), bound, read(f"/proc/{pid}/cmdline"))
        job.process.send_signal(signal.SIGINT)
        self.assertNotEqual(job.wait(30), 0)
        self.nothing_left(job)

    def test_ctrl_c_waited_for_a_reader_that_stands_still_and_hosts_that_ended_well_were_lost(self):
        reader, writer = os.pipe()
        job = self.launch("", "1 1", program=["--no_python", "yes"], stdout=writer)
        os.close(writer)
        self.addCleanup(os.close, reader)
        until(lambda: select.select([reader], [], [], 0)[0], "the first output")
        sent = lambda: int(re.search(r"rchar: (\d+)", read(f"/proc/{job.agent}/io"))[1])
        def is_held():
            before = sent()
            time.sleep(0.3)
            return sent() == before
        until(is_held, "the output to be held", 30)
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(30), 130)
        self.assertNotIn("was lost", job.stderr)
        self.nothing_left(job)


@needs_hosts
class Secrets(OnHosts):
    names = "a b"

    def test_the_secret_stands_in_no_command_line_and_no_environment(self):
        # Between us and the hosts: writes down what it passes on.
        inner = self.agent()
        outer = os.path.join(self.folder, "spy.sh")
        write(outer, f"#!/bin/sh\nIFS= read -r line; echo \"$line\" > {self.folder}/heard.$1\n"
              f"{{ echo \"$line\"; exec cat; }} | {inner} \"$1\" \"$2\"\n", 0o755)
        job = self.launch("mark=up hold", "1 1", agent=outer)
        job.wait_events("up", 2)
        heard = {read(f"{self.folder}/heard.{self.hosts.address(name)}").strip() for name in self.hosts.names}
        self.assertEqual(len(heard), 1)
        secret = heard.pop().encode()
        self.assertRegex(secret.decode(), "^[0-9a-f]{64}$")
        looked_at = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            for name in ("cmdline", "environ"):
                with contextlib.suppress(OSError):
                    with open(f"/proc/{pid}/{name}", "rb") as file:
                        self.assertNotIn(secret, file.read(), f"{pid} {name}")
                        looked_at += 1
        self.assertGreater(looked_at, 10)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143, job.stderr)
        self.nothing_left(job)


class HereOnly(JobTest):
    """Without another machine."""

    def test_without_ssh_other_hosts_are_refused_with_the_cure(self):
        job = self.finished("--hosts nodea,nodeb:2 --cpu", "mark=up", code=1)
        self.assertIn("nodea is another machine", job.stderr)
        self.assertIn("--ssh", job.stderr)

    def test_hosts_that_are_this_machine_need_no_transport(self):
        job = self.finished(f"--hosts localhost:2,127.0.0.1:1 --main_process_port {free_port()} {FLAGS}", "mark=up")
        self.assertEqual(sorted(rank for _, rank, _, _ in job.events("up")), ["0", "1", "2"])

    def test_all_that_is_wrong_is_told_at_once_with_file_and_line(self):
        job = self.job("", "x")
        job.wait()
        path = os.path.join(job.folder, "hosts.txt")
        write(path, "# hosts\nnode1 slots=2\nnode2 slots=many\nnode3 gpus=4\n-oProxyCommand=x\n")
        found = subprocess.run([ACC, "--hostfile", path, "--hosts", "a:0", "--ssh", "--machine_rank", "1", "x.py"], capture_output=True, text=True)
        self.assertEqual(found.returncode, 2, found.stderr)
        for text in (f"{path}:3: 'slots=many'", f"{path}:4: 'gpus=4'", f"{path}:5: '-oProxyCommand=x'", "--hosts: 'a:0'", "--machine_rank can't be given with --hosts"):
            self.assertIn(text, found.stderr)

    def test_contradictions_are_refused_with_both_values(self):
        for flags, pattern in (("--nnodes 3 --hosts a,b", "--nnodes 3, but there are 2 hosts"),
                               ("--num_processes 5 --hosts a:2,b:2", "--num_processes 5, but the hosts have 4 slots"),
                               ("--nproc_per_node 3 --hosts a:2,b:2", "--nproc_per_node 3, but --hosts gives a 2 slots"),
                               ("--hosts localhost,b", "--main_process_ip"),
                               ("--rdzv_backend static --hosts a:1,b:2", "static gives all hosts as many workers"),
                               ("--ssh_options=-v --hosts a,b", None)):
            found = subprocess.run(["sh", "-c", f"exec {ACC} --ssh {flags} --print_plan x.py"], capture_output=True, text=True)
            self.assertEqual(found.returncode, 2 if pattern else 0, f"{flags}: {found.stderr}")
            self.assertIn(pattern or "", found.stderr)

    def test_the_plan_shows_hosts_and_commands_and_no_value_of_a_variable(self):
        found = subprocess.run([ACC, "--ssh", "--hosts", "a:2,user@b:1", "--env", "TOKEN=hidden", "--print_plan", "train.py", "--lr", "it's"],
                               capture_output=True, text=True, check=True)
        plan = json.loads(found.stdout)
        self.assertEqual([(host["host"], host["node_rank"], host["workers"]) for host in plan["hosts"]], [("a", 0, 2), ("user@b", 1, 1)])
        self.assertEqual(plan["hosts"][1]["command"][0], "ssh")
        self.assertEqual(plan["hosts"][1]["command"][-2], "user@b")
        self.assertIn("--node_rank=1", plan["hosts"][1]["command"][-1])
        self.assertIn("--main_process_ip=a", plan["hosts"][1]["command"][-1])
        self.assertEqual(plan["env"], ["TOKEN"])
        self.assertNotIn("hidden", found.stdout)

    @unittest.skipUnless(shutil.which("ssh"), "ssh is not installed (Debian: openssh-client)")
    def test_what_ssh_says_of_a_host_comes_with_a_cure(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # not listening: refused
            port = taken.getsockname()[1]
            found = subprocess.run([ACC, "--ssh", "--ssh_options", f"-p {port}", "--hosts", "nosuchhost.invalid,root@127.0.0.1", "x.py"],
                                   capture_output=True, text=True, timeout=30 * PATIENCE)
        self.assertEqual(found.returncode, 1, found.stderr)
        self.assertIn("2 of 2 hosts", found.stderr)
        self.assertRegex(found.stderr, "nosuchhost.invalid: .*no such name here")
        self.assertRegex(found.stderr, "root@127.0.0.1: .*refused.*no ssh server listens there")


@needs_hosts
@unittest.skipUnless(SSHD and shutil.which("ssh-keygen"), "sshd is not installed (Debian: openssh-server)")
class RealSsh(OnHosts):
    def setUp(self):
        super().setUp()
        os.makedirs("/run/sshd", exist_ok=True)
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.folder}/{name}_key"], check=True)
        shutil.copy(f"{self.folder}/user_key.pub", f"{self.folder}/authorized")
        write(f"{self.folder}/sshd_config", f"HostKey {self.folder}/host_key\nAuthorizedKeysFile {self.folder}/authorized\nStrictModes no\nUsePAM no\n"
              "PermitRootLogin prohibit-password\nPidFile none\nPort 2222\nMaxStartups 100\n")
        for name in self.hosts.names:
            server = self.hosts.run(name, [SSHD, "-D", "-e", "-f", f"{self.folder}/sshd_config"], stderr=subprocess.DEVNULL)
            self.addCleanup(server.wait)
            self.addCleanup(server.kill)
        for name in self.hosts.names:
            until(lambda: ":2222" in self.hosts.output(name, "ss", "-tlnH"), f"sshd on {name}")

    def ssh(self, words, flags="", **options):
        ways = f"-p 2222 -i {self.folder}/user_key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        logins = ",".join(f"root@{self.hosts.address(name)}" for name in self.hosts.names)
        job = self.job(["--hosts", logins, "--ssh", "--ssh_options", ways, "--env", "FAKE_EVENTS", *FLAGS.split(), *flags.split()], words,
                       wrap=self.hosts.wrap("a"), **options)
        return job

    def test_a_job_runs_through_ssh(self):
        job = self.ssh("mark=up out=hello")
        self.assertEqual(job.wait(30), 0, job.stderr)
        self.assertEqual(len(job.events("up")), 3)
        self.assertEqual(job.stdout, "hello\n" * 3)

    def test_ctrl_c_and_exit_codes_pass_through_ssh(self):
        job = self.ssh("mark=up hold")
        job.wait_events("up", 3)
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(30), 130, job.stderr)
        job = self.ssh("any rank=2 exit=9 any hold")
        self.assertEqual(job.wait(30), 9, job.stderr)

    def test_a_manager_that_signals_all_processes_killed_ssh_and_so_the_workers_without_a_grace(self):
        """As Slurm with linuxproc, systemd, PBS and LSF do."""
        job = self.ssh("note=USR1 on=TERM:0 mark=up hold", flags="--grace 10s")
        job.wait_events("up", 3)
        self.signal_all_processes(job, signal.SIGUSR1)
        job.wait_events("got_SIGUSR1", 3)
        time.sleep(1.5)  # the guardian holds its own copy back for 500 ms
        self.signal_all_processes(job, signal.SIGTERM)
        self.assertEqual(job.wait(30), 143, job.stderr)
        self.assertNotIn("was lost", job.stderr)
        self.assertEqual(len(job.events("got_SIGUSR1")), 3)
        until(lambda: not job.all_alive(), "the end on all hosts", 10)

    def test_kill_of_the_local_process_ends_the_job_on_all_hosts(self):
        job = self.ssh("mark=up hold")
        job.wait_events("up", 3)
        os.kill(job.pid, signal.SIGKILL)
        job.wait()
        until(lambda: not job.all_alive(), "the end on all hosts", 10)

    def test_three_ctrl_c_did_not_end_the_command_while_ssh_had_no_answer(self):
        # c isn't lost before all keys are pressed, however long the machine stands still between them.
        job = self.ssh("ignore=INT ignore=TERM mark=up hold", flags="--dead_after 20s --lease 40s")
        job.wait_events("up", 3)
        self.hosts.partition("c")
        for answer in ("got SIGINT", "Ctrl-C again to kill", ""):
            job.process.send_signal(signal.SIGINT)
            job.wait_stderr(answer)  # two that are pending count as one
        self.assertEqual(job.wait(10), 130, job.stderr)
        self.assertIn(f"root@{self.hosts.address('c')} does not report the end of its part; its part ends when its lease is over", job.stderr)

    def test_a_killed_ssh_is_named(self):
        job = self.ssh("mark=up hold")
        job.wait_events("up", 3)
        b = self.hosts.address("b")
        ssh = next(pid for pid, words in processes_with(job.token).items() if words.startswith("ssh ") and f"root@{b}" in words.split("exec sh")[0])
        os.kill(ssh, signal.SIGKILL)
        self.assertNotEqual(job.wait(30), 0)
        self.assertIn(f"the connection to root@{b} was lost", job.stderr)
        until(lambda: not job.all_alive(), "the end on all hosts", 10)


if __name__ == "__main__":
    main()
