"""One job on several hosts: how it starts, restarts, ends. Hosts are network namespaces; each test's workers prove P1 and P3."""
import datetime, os, re, signal, socket, sys, time, unittest

from cluster import DEAD, PORT, ClusterTest
from harness import FAKE, PATIENCE, SLACK, main, until, write
from hosts import needs_hosts

# Nobody is lost here but by a fault: no agent that a busy machine holds up for some seconds, no node that is started late, no worker that
# is late with what it writes down when it is asked to end.
UNHURRIED = f"--dead_after {10 * SLACK:g}s --lease {21 * SLACK:g}s --join_timeout 60s --last_call 1s --grace 20s --restart_delay 0"


class NodesTest(ClusterTest):
    def cluster(self, names, **options):
        options.setdefault("times", UNHURRIED)
        return super().cluster(names, **options)


@needs_hosts
class Start(NodesTest):
    def assert_ranks(self, lives, blocks):
        """blocks: {"a": [0, 1], "b": [2]}"""
        found = {}
        for life in lives:
            found.setdefault(life.node, []).append(life.rank)
        self.assertEqual({node: sorted(ranks) for node, ranks in found.items()}, blocks)

    def test_static_two_nodes_of_two(self):
        cluster = self.cluster("a b", backend="static", slots=2, words="run=200ms")
        cluster.start_all()
        self.all_end(cluster, 0)
        lives = cluster.lives()
        self.assert_ranks(lives, {"a": [0, 1], "b": [2, 3]})
        self.assertEqual({(life.master, life.port) for life in lives}, {(cluster.hosts.address("a"), str(PORT))})

    def test_static_three_nodes_in_any_order_of_start(self):
        cluster = self.cluster("a b c", backend="static", words="run=200ms")
        for host in "cba":
            cluster.start(host)
        self.all_end(cluster, 0)
        self.assert_ranks(cluster.lives(), {"a": [0], "b": [1], "c": [2]})

    def test_tcp_and_c10d_need_no_ranks(self):
        for backend in ("tcp", "c10d"):
            cluster = self.cluster("a b c", backend=backend, slots=2, words="run=200ms")
            cluster.start_all()
            self.all_end(cluster, 0)
            self.assert_ranks(cluster.lives(), {"a": [0, 1], "b": [2, 3], "c": [4, 5]})

    def test_c10d_lines_and_config_files_that_give_every_node_rank_0_made_each_a_coordinator_of_its_own(self):
        """`srun torchrun --node_rank $SLURM_NODEID …`, expanded before srun; a config file with `machine_rank: 0` for all."""
        for name in ("flag", "tcp", "config"):
            with self.subTest(name):
                cluster = self.cluster("a b c", backend="tcp" if name == "tcp" else "c10d", words="run=200ms")
                if name == "config":
                    config = os.path.join(cluster.folder, "shared.yaml")
                    write(config, "distributed_type: MULTI_CPU\nnum_machines: 3\nnum_processes: 3\nmachine_rank: 0\nuse_cpu: true\n"
                                  f"main_process_ip: {cluster.hosts.address('a')}\nmain_process_port: {PORT}\n")
                    cluster.flags_for = lambda host: f"--config_file {config} --rdzv_backend c10d --num_cpu_threads_per_process 1 --node_name {host} {cluster.times}"
                else:
                    cluster.flags = "--node_rank 0"
                for host in "bca":
                    cluster.start(host)
                self.all_end(cluster, 0)
                self.assertEqual(sorted(life.rank for life in cluster.lives()), [0, 1, 2], cluster.tell())
                said = "".join(node.stderr for node in cluster.nodes.values())
                self.assertEqual(said.count("warning: node rank 0 was given to node "), 1, said)
                self.assertIn("warning: node rank 0 was given", cluster.nodes["a"].stderr)

    def test_c10d_s_endpoint_is_served_where_its_address_is_and_ranks_that_differ_give_the_order(self):
        cluster = self.cluster("a b c", backend="c10d", words="run=200ms")
        for host, rank in (("b", 0), ("c", 1), ("a", 2)):  # rank 0 isn't at the endpoint
            cluster.start(host, f"--node_rank {rank}")
        self.all_end(cluster, 0)
        self.assert_ranks(cluster.lives(), {"b": [0], "c": [1], "a": [2]})
        self.assertNotIn("warning: node rank", "".join(node.stderr for node in cluster.nodes.values()))

    def test_a_c10d_line_with_the_endpoint_s_port_as_master_port_gave_the_workers_the_coordinator_s(self):
        cluster = self.cluster("a b", backend="c10d", words="run=200ms")
        cluster.flags = f"--master_addr {cluster.hosts.address('a')} --master_port {PORT}"
        cluster.start_all()
        self.all_end(cluster, 0)
        lives = cluster.lives()
        self.assertEqual(len(lives), 2, cluster.tell())
        self.assertNotIn(str(PORT), {life.port for life in lives})
        self.assertEqual(cluster.nodes["a"].stderr.count(f"port {PORT} is the one at which the machines meet"), 1)

    def test_without_a_secret_if_insecure_is_said(self):
        cluster = self.cluster("a b", secret=False, words="run=200ms")
        cluster.start_all()
        self.all_end(cluster, 0)
        self.assertIn("insecure", cluster.nodes["a"].stderr)

    def test_an_endpoint_of_ipv6_and_one_by_name(self):
        cluster = self.cluster("a b", endpoint=f"[fd77::1]:{PORT}", words="run=200ms")
        cluster.start_all()
        self.all_end(cluster, 0)
        self.assertEqual({life.master for life in cluster.lives()}, {"fd77::1"})
        named = self.cluster("a b", endpoint=f"head:{PORT}", words="run=200ms")
        for host in named.names:
            named.hosts.hosts_entry(host, {"head": named.hosts.address("a")})
        named.start_all()
        self.all_end(named, 0)

    def test_a_static_job_at_an_ipv6_address_with_or_without_brackets(self):
        for address in ("[fd77::1]", "fd77::1"):
            with self.subTest(address=address):
                cluster = self.cluster("a b", backend="static", words="run=200ms", flags=f"--main_process_ip {address}")
                cluster.start_all()
                self.all_end(cluster, 0)
                self.assertEqual({life.master for life in cluster.lives()}, {"fd77::1"})

    def test_slots_may_differ(self):
        cluster = self.cluster("a b c", words="run=200ms")
        for host, slots in (("a", 1), ("b", 3), ("c", 2)):
            cluster.start(host, f"--nproc_per_node {slots}")
        self.all_end(cluster, 0)
        self.assert_ranks(cluster.lives(), {"a": [0], "b": [1, 2, 3], "c": [4, 5]})

    def test_two_nodes_start_at_once(self):
        """Elastic of 2 nodes: no polling, no last call when all that may come are there."""
        taken = []
        while len(taken) < 10 and not any(took < 0.5 * SLACK for took in taken):  # the quickest of ten, on a machine that does much else
            cluster = self.cluster("a b", words="run=100ms")
            cluster.start_all()
            self.all_end(cluster, 0)
            lives = cluster.lives(0)
            self.assertEqual(len(lives), 2, cluster.tell())
            taken.append(max(life.start for life in lives) / 1e9 - max(node.started for node in cluster.nodes.values()))
        self.assertLess(min(taken), 0.5 * SLACK, taken)

    def test_a_node_that_waits_says_for_whom_and_where(self):
        cluster = self.cluster("a b c", times="--join_timeout 60s --dead_after 5s")
        cluster.start("a")
        cluster.start("b")
        cluster.nodes["a"].wait_text("waiting for other nodes", "2 of 3", deadline=8)
        cluster.start("c")
        cluster.wait_round(0, 3)
        self.stop(cluster)

    def test_torchrun_s_static_line_with_uneven_worker_counts_was_refused(self):
        cluster = self.cluster("a b", words="run=200ms")
        cluster.flags_for = lambda host: (f"--cpu --num_cpu_threads_per_process 1 --nnodes 2 --node_rank {'ab'.index(host)} --master_addr {cluster.hosts.address('a')} "
                                          f"--master_port 29400 {cluster.times}")
        cluster.start("b", "--nproc_per_node 1")
        cluster.start("a", "--nproc_per_node 2")
        self.all_end(cluster, 0)
        self.assert_ranks(cluster.lives(), {"a": [0, 1], "b": [2]})
        self.assertEqual({life.world for life in cluster.lives()}, {3})

    def test_script_arguments_of_each_node_s_own_were_refused(self):
        """As `--log log.$(hostname)`, or `--node_rank $N` of an old script: the job runs, and both nodes' users read of it once."""
        for backend in ("static", "tcp"):
            with self.subTest(backend):
                cluster = self.cluster("a b", backend=backend)
                cluster.start("a", words="run=300ms")
                cluster.start("b", words="run=200ms")
                self.all_end(cluster, 0)
                self.assert_ranks(cluster.lives(), {"a": [0], "b": [1]})
                a, b = cluster.nodes["a"].stderr, cluster.nodes["b"].stderr
                self.assertRegex(b, r"warning: this node joined, but its arguments differ: '.*run=200ms.*' here, '.*run=300ms.*' on .*\. If that is a mistake, stop the job\n")
                self.assertRegex(a, r"warning: node '.*' joined, but its arguments differ: '.*run=200ms.*' there, '.*run=300ms.*' on ")
                self.assertEqual((a.count("differ"), b.count("differ")), (1, 1), cluster.tell())

    def test_too_few_nodes_end_at_the_deadline(self):
        cluster = self.cluster("a b c", times="--join_timeout 10s --dead_after 5s", words="run=100ms")  # in which b has come
        cluster.start("a")
        cluster.start("b")
        self.all_end(cluster, 69)
        cluster.nodes["a"].wait_text("2 of 3 nodes")
        self.assertEqual(cluster.lives(), [])

    def test_more_than_the_minimum_after_the_last_call_and_a_late_one_at_the_next_round(self):
        cluster = self.cluster("a b c", nnodes="2:3", flags="--max_restarts 2")
        cluster.start("a")
        cluster.start("b")
        self.assert_ranks(cluster.wait_round(0, 2), {"a": [0], "b": [1]})
        cluster.start("c")
        cluster.nodes["c"].wait_text("spare", deadline=5)
        self.assertEqual(len(cluster.living()), 2)
        cluster.kill_worker(1)
        self.assert_ranks(cluster.wait_round(1, 3), {"a": [0], "b": [1], "c": [2]})
        self.stop(cluster)

    def test_systemd_never_learnt_that_a_node_was_ready_whose_first_round_was_not_the_jobs(self):
        cluster = self.cluster("a b", nnodes="1:2", flags="--max_restarts 2")
        cluster.start("a")
        cluster.wait_round(0, 1)
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.settimeout(20 * PATIENCE)
        path = os.path.join(cluster.folder, "notify")
        manager.bind(path)
        cluster.start("b", env={"NOTIFY_SOCKET": path})
        cluster.nodes["b"].wait_text("spare")
        cluster.kill_worker(0)
        cluster.wait_round(1, 2)
        until(lambda: "READY=1\nSTATUS=1 workers running, attempt 1" in manager.recv(4096).decode(), "the readiness of b")
        self.stop(cluster)

    def test_scale_up_now_takes_a_late_node_at_once(self):
        cluster = self.cluster("a b c", nnodes="2:3", flags="--max_restarts 2 --scale_up now")
        cluster.start("a")
        cluster.start("b")
        cluster.wait_round(0, 2)
        cluster.start("c")
        lives = cluster.wait_round(1, 3)
        self.assertEqual({life.restarts for life in lives}, {0}, "growing costs no restart")
        cluster.nodes["c"].wait_text("to start again with this node's")
        self.assertNotIn("waits as a spare", cluster.nodes["c"].stderr)
        self.stop(cluster)

    def test_a_surplus_node_is_a_spare_and_never_ends_the_job(self):
        cluster = self.cluster("a b c", nnodes="2")
        cluster.start("a")
        cluster.start("b")
        cluster.wait_round(0, 2)
        spare = cluster.start("c")
        spare.wait_text("spare")
        spare.process.send_signal(signal.SIGKILL)
        spare.wait()
        # Its connection ends with it, so that its loss is noticed at once.
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 3 * DEAD, "the spare's death to be known", 10)
        self.assertEqual({life.round for life in cluster.living()}, {0})
        self.stop(cluster)


@needs_hosts
class Restart(NodesTest):
    def test_a_crash_on_one_node_restarts_all_with_one_count_and_a_fresh_port(self):
        for backend in ("tcp", "static"):
            cluster = self.cluster("a b c", backend=backend, slots=2, flags="--max_restarts 3")
            cluster.start_all()
            first = cluster.wait_round(0, 6)
            for attempt, rank in enumerate((2, 5, 0), 1):
                cluster.kill_worker(rank)
                lives = cluster.wait_round(attempt, 6)
                self.assertEqual({life.restarts for life in lives}, {attempt})
                self.assertEqual({(life.node, life.rank) for life in lives}, {(life.node, life.rank) for life in first}, "ranks are sticky")
                if backend == "tcp":
                    self.assertNotIn(lives[0].port, {life.port for life in cluster.lives() if life.round < attempt})
            # The budget is the job's, not the node's.
            cluster.kill_worker(3)
            self.all_end(cluster, 137)
            for node in cluster.nodes.values():
                self.assertIn("rank 3", node.stderr)
                self.assertIn("SIGKILL", node.stderr)

    def test_the_first_failure_decides_the_code_on_all_nodes_and_is_named_on_all(self):
        cluster, begun = self.cluster("a b c", slots=2), time.time()
        program = os.path.join(cluster.folder, "fails.sh")
        write(program, '#!/bin/sh\n[ "$RANK" = 4 ] && { echo my last words; exit 23; }\nexec sleep 1000\n', 0o755)
        for host in cluster.names:
            cluster.start(host, "--report report.json", program=["--no_python", program])
        self.all_end(cluster, 23)
        found = {}
        for host, node in cluster.nodes.items():
            block = node.stderr.split("job failed: ")[1]
            self.assertRegex(block, r"^rank 4\b")
            for row in ("exited with code 23", r"who +rank 4 \(local rank 0\) on \S+, pid \d+", r"when +\d{4}-.* UTC, .* into attempt 0", r"\| my last words"):
                self.assertRegex(block, row)
            found[host] = self.report(node)["first_failure"]
            self.assertEqual(found[host]["last_lines"], ["my last words"])
            self.assertTrue(begun - 10 < datetime.datetime.fromisoformat(found[host]["time"]).timestamp() < time.time() + 10, found[host]["time"])
        for host in "ab":
            self.assertEqual(found[host].keys(), found["c"].keys())
            self.assertEqual({**found[host], "time": 0, "peak_rss_bytes": 0}, {**found["c"], "time": 0, "peak_rss_bytes": 0})

    def test_a_failure_that_is_never_restarted_was_one_line_on_the_other_nodes(self):
        cluster = self.cluster("a b")
        program = os.path.join(cluster.folder, "fails.py")
        write(program, "import os, socket, time\n"
                       "if os.environ['RANK'] != '1': time.sleep(1000)\n"
                       "print('disk quota exceeded', flush=True)\n"
                       "agent = socket.socket(socket.AF_UNIX)\n"
                       "agent.connect(os.environ['ACC_AGENT_SOCKET'].replace('@', '\\0', 1))\n"
                       "agent.sendall(b'hello 1\\nno_restart the loss is NaN\\n')\n"
                       "os._exit(7)\n")
        for host in cluster.names:
            cluster.start(host, "--max_restarts 3 --report report.json", program=["--no_python", "/usr/bin/python3", program])
        self.all_end(cluster, 7)
        for node in cluster.nodes.values():
            block = node.stderr.split("job failed: ")[1]
            for row in (r"^rank 1\b.* exited with code 7\n", r"who +rank 1 ", r"it said +a restart won't help: the loss is NaN\n",
                        r"\| disk quota exceeded\n", r"done +restarted 0 of 3 times"):
                self.assertRegex(block, row)
            self.assertEqual(self.report(node)["first_failure"]["no_restart"], "the loss is NaN")

    def test_ranks_of_another_node_that_had_finished_too_early_were_named_in_its_own_report_alone(self):
        cluster = self.cluster("a b c", slots=2)
        program = os.path.join(cluster.folder, "early.sh")
        write(program, '#!/bin/sh\n[ "$RANK" -ge 4 ] && exit 0\n[ "$RANK" = 0 ] && { sleep 1; exit 23; }\nexec sleep 1000\n', 0o755)
        for host in cluster.names:
            cluster.start(host, "--report report.json", program=["--no_python", program])
        self.all_end(cluster, 23)
        for host in "ab":
            self.assertIn("others    had finished: ranks 4-5 on c\n", cluster.nodes[host].stderr)
            self.assertEqual(self.report(cluster.nodes[host])["finished_elsewhere"], ["ranks 4-5 on c"])
        self.assertIn("others    had finished: rank 4, 5 (here)\n", cluster.nodes["c"].stderr)
        self.assertEqual(self.report(cluster.nodes["c"])["finished_elsewhere"], [])

    def test_a_node_whose_rank_was_done_early_counted_what_the_others_computed_after_it_as_a_restart(self):
        cluster = self.cluster("a b")
        program = os.path.join(cluster.folder, "early.sh")
        write(program, '#!/bin/sh\n[ "$TORCHELASTIC_RESTART_COUNT" = 1 ] && exit 0\n[ "$RANK" = 1 ] && exit 0\nsleep %d\nexit 23\n' % (3 * SLACK), 0o755)
        for host in cluster.names:
            cluster.start(host, "--max_restarts 1 --report report.json", program=["--no_python", program])
        self.all_end(cluster, 0)
        restarting = {host: self.report(node)["goodput"]["seconds_restarting"] for host, node in cluster.nodes.items()}
        # On the node that waits it may be less than the millisecond that is told.
        self.assertTrue(all(seconds < 1.5 * SLACK for seconds in restarting.values()) and any(restarting.values()), restarting)

    def test_a_hint_for_another_node_named_the_interpreter_of_this_one(self):
        cluster = self.cluster("a b")
        script = os.path.join(cluster.folder, "train.py")
        write(script, "import os, time\nif os.environ['RANK'] == '1': import not_there_at_all\ntime.sleep(1000)\n")
        pythons = {}
        for host in cluster.names:
            pythons[host] = os.path.join(cluster.folder, f"python-{host}")
            os.symlink(sys.executable, pythons[host])
            cluster.start(host, "--report report.json", program=[script], env={"PYTHON_EXEC": pythons[host]})
        self.all_end(cluster, 1)
        words = pythons["b"] + "%s has no module 'not_there_at_all': install it there"
        self.assertIn("hint      " + words % " on b", cluster.nodes["a"].stderr)
        self.assertIn("hint      " + words % "", cluster.nodes["b"].stderr)
        self.assertIn(words % " on b", self.report(cluster.nodes["a"])["first_failure"]["hint"])

    def test_an_error_before_long_lines_on_another_node_was_one_of_its_last_lines(self):
        cluster = self.cluster("a b")
        script = os.path.join(cluster.folder, "train.py")
        write(script, "import atexit, os, sys, time\nif os.environ['RANK'] == '0': time.sleep(1000)\n"
              "atexit.register(lambda: [print('wandb: ' + 'x' * 380, i, file=sys.stderr) for i in range(15)])\nraise ValueError('no data')\n")
        for host in cluster.names:
            cluster.start(host, "--report report.json", program=[script], env={"PYTHON_EXEC": sys.executable})
        self.all_end(cluster, 1)
        self.assertRegex(cluster.nodes["a"].stderr, r"output    its last error, and its last lines:\n    \| Traceback(.*\n)+?    \| ValueError: no data\n    \| …\n    \| wandb")
        self.assertEqual(self.report(cluster.nodes["a"])["first_failure"]["error_lines"][-1], "ValueError: no data")

    def test_a_pause_before_a_restart_is_told_on_all_nodes(self):
        cluster = self.cluster("a b", flags="--max_restarts 3 --restart_delay 1s")
        cluster.start_all()
        for attempt in range(2):
            cluster.wait_round(attempt, 2)
            cluster.kill_worker(1)
        for node in cluster.nodes.values():
            node.wait_text(r"restarting all workers in [\d.]+ m?s \(restart 2 of 3\) after: rank 1 on \S+ was killed by SIGKILL")
        cluster.wait_round(2, 2)
        self.stop(cluster)

    def test_nodes_that_share_the_log_folder_have_folders_of_their_own(self):
        cluster = self.cluster("a b", words="run=100ms")
        logs = os.path.join(cluster.folder, "logs")
        for host in cluster.names:
            cluster.start(host, f"--log_dir {logs} --tee 3 --rdzv_id night")
        self.all_end(cluster, 0)
        self.assertEqual(sorted(name.rsplit("_", 1)[0] for name in os.listdir(logs) if name != "latest"), ["night_a", "night_b"])

    def test_workers_elsewhere_are_told_who_was_lost_before_they_are_asked_to_end(self):
        cluster = self.cluster("a b")
        for host in cluster.names:
            cluster.start(host, program=["--no_python", FAKE], words="note=TERM mark=up rank=1 all=up signal=KILL any lost=20s exit=0",
                          env={"FAKE_EVENTS": os.path.join(cluster.folder, "up")})
        self.all_end(cluster, 137)
        self.assertRegex(cluster.nodes["a"].stdout, r"(?m)^lost 1 \d+ killed by SIGKILL on b$")

    def test_workers_elsewhere_are_told_which_node_was_lost(self):
        cluster = self.cluster("a b c", times=f"--dead_after {3 * SLACK:g}s --lease {10 * SLACK:g}s --join_timeout 60s --grace 20s")
        for host in cluster.names:
            cluster.start(host, program=["--no_python", FAKE], words="rank=2 hold any note=TERM mark=up lost=20s exit=0")
        cluster.nodes["a"].wait_events("up", 1)
        cluster.nodes["b"].wait_events("up", 1)
        cluster.hosts.power_off("c")
        for host in "ab":
            cluster.nodes[host].wait(20)
            self.assertIn("lost 2 0 its node c was lost", cluster.nodes[host].stdout)

    def test_a_program_that_is_missing_on_one_node_ends_all_once(self):
        cluster = self.cluster("a b c", flags="--max_restarts 3")
        for host in cluster.names:
            folder = os.path.join(cluster.folder, host)
            os.makedirs(os.path.join(folder))
            if host != "b":
                write(os.path.join(folder, "tool"), "#!/bin/sh\nexec sleep 1000\n", 0o755)
        begun = time.monotonic()
        for host in cluster.names:
            cluster.start(host, program=["--no_python", "./tool"], folder=os.path.join(cluster.folder, host))
        self.all_end(cluster, 127)
        self.assertLess(time.monotonic() - begun, 30 * SLACK)  # and not --join_timeout
        for node in cluster.nodes.values():
            self.assertIn("No such file", node.stderr)
            self.assertNotIn("attempt 1", node.stderr)

    def test_a_crash_on_b_is_answered_on_a_in_milliseconds(self):
        cluster = self.cluster("a b", flags="--max_restarts 50")
        cluster.start_all()
        taken = []
        while len(taken) < 10 or (len(taken) < 40 and min(taken) >= 60 * SLACK):  # most may meet what else the machine does
            attempt = len(taken)
            cluster.wait_round(attempt, 2)
            begun = time.monotonic()
            cluster.kill_worker(1)
            lives = cluster.wait_round(attempt + 1, 2)
            taken.append(1000 * (next(life.start for life in lives if life.node == "a") / 1e9 - begun))
        taken.sort()
        print(f"\n  crash on b to the first instruction on a, authenticated: median {taken[len(taken) // 2]:.1f} ms, worst {taken[-1]:.1f} ms", flush=True)
        self.assertLess(taken[0], 60 * SLACK)  # what was promised, 30 ms, is measured by tests/bench on a quiet machine
        self.stop(cluster)


# Half a second is promised, to which a busy machine adds what it holds up a worker, an agent or this test; in one of three tries all of
# them go on.
SOON = (0.5 + 2.0) * SLACK
TRIES = 3


@needs_hosts
class Stop(NodesTest):
    def stop_one(self, host, signo, code, flags=""):
        for _ in range(TRIES):
            cluster = self.cluster("a b c", slots=2, flags=flags)
            cluster.start_all()
            cluster.wait_round(0, 6)
            begun = time.monotonic_ns()
            cluster.nodes[host].process.send_signal(signo)
            self.all_end(cluster, code)
            taken = {}
            for life in cluster.lives():
                came = [at for at, number in life.signals if number == signo]
                self.assertTrue(came, f"{life.name()} got {life.signals}")
                taken[life.name()] = (came[0] - begun) / 1e9
            if max(taken.values()) < SOON:
                return cluster
        self.fail(f"not within {SOON:g} s: {taken}")

    def test_sigterm_to_one_agent_reaches_all_ranks_within_half_a_second(self):
        for host in "ab":
            cluster = self.stop_one(host, signal.SIGTERM, 143)
            for node in cluster.nodes.values():
                self.assertRegex(node.stderr, rf"SIGTERM.*\b{host}\b|\b{host}\b.*SIGTERM")

    def test_ctrl_c_on_one_node_ends_the_job_on_all(self):
        cluster = self.stop_one("c", signal.SIGINT, 130)
        for node in cluster.nodes.values():
            self.assertRegex(node.stderr, r"SIGINT.*\bc\b|\bc\b.*(SIGINT|Ctrl-C)")

    def test_preemption_reaches_all_and_asks_for_a_requeue(self):
        cluster = self.stop_one("b", signal.SIGUSR1, 75, flags="--preempt_signals USR1 --preempt_grace 1s")
        for node in cluster.nodes.values():
            self.assertRegex(node.stderr, r"SIGUSR1")

    def test_a_signal_that_ends_nothing_reaches_all_ranks(self):
        cluster = self.cluster("a b c", slots=2)
        cluster.start_all()
        cluster.wait_round(0, 6)
        taken = []
        while len(taken) < TRIES and not any(took < SOON for took in taken):
            begun = time.monotonic_ns()
            cluster.nodes["b"].process.send_signal(signal.SIGUSR2)
            cluster.wait(lambda: all(len(life.signals) > len(taken) for life in cluster.lives()), "SIGUSR2 everywhere")
            self.assertEqual({number for life in cluster.lives() for _, number in life.signals}, {signal.SIGUSR2})
            taken.append(max(life.signals[-1][0] - begun for life in cluster.lives()) / 1e9)
        self.assertLess(min(taken), SOON, taken)
        self.assertEqual(len(cluster.living()), 6)
        self.stop(cluster)

    def test_a_signal_while_nodes_are_missing_ends_those_that_wait(self):
        cluster = self.cluster("a b c")
        cluster.start("a")
        cluster.start("b")
        cluster.nodes["a"].wait_text("waiting for other nodes", "2 of 3", deadline=15)  # b is one of them: its wish counts
        cluster.nodes["b"].process.send_signal(signal.SIGTERM)
        self.assertEqual(cluster.nodes["b"].wait(5), 143, cluster.tell())
        self.assertEqual(cluster.nodes["a"].wait(5), 143, "a wish of one node is the job's")

    def test_a_worker_that_ignores_sigterm_is_killed_after_the_grace_everywhere(self):
        cluster = self.cluster("a b", words="linger=60s", times=UNHURRIED.replace("--grace 20s", "--grace 500ms"))
        cluster.start_all()
        cluster.wait_round(0, 2)
        cluster.nodes["a"].process.send_signal(signal.SIGTERM)
        self.all_end(cluster, 143)


if __name__ == "__main__":
    main()
