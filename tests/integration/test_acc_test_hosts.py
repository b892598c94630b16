"""acc-test over several machines: --hosts through their daemons, by hand on each, and --network with something wrong between them."""
import contextlib, json, os, re, shutil, signal, subprocess, tempfile, unittest

from harness import BIN, PROGRAMS, SLACK, free_port, main, read, until
from hosts import Hosts, needs_hosts
from test_cluster_launch import ALICE, OnDaemons
from test_hosts_launch import OnHosts

for name in ("acc-ctl", "acc-test-worker", "acc-test"):
    if not os.path.exists(os.path.join(PROGRAMS.name, name)):
        shutil.copy(os.path.join(BIN, name), PROGRAMS.name)
ACC_TEST = os.path.join(PROGRAMS.name, "acc-test")
PLAIN = ["--cpu", "--num_cpu_threads_per_process", "1", "--mixed_precision=no", "--dynamo_backend=no"]
LIMIT_S = 180 * SLACK


def blamed(told):
    """{"b: slow", "a to c: slow", "b and c: broken"} of a --json file."""
    network = next(one for one in told["results"] if one["name"] == "network")
    joint = {"node": "", "link": " and ", "direction": " to "}
    return {f"{joint[one['kind']].join(one['nodes'])}: {one['trouble']}" for one in network["details"]["blamed"]}


def troubles_of_pairs(told):
    return {tuple(one["nodes"]): one["trouble"] for one in told["results"] if one["name"] == "pair"}


@needs_hosts
class ByHand(unittest.TestCase):
    """acc-test --network typed on each of two, three or four machines."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="acc-network-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def begin(self, names, *words, join=30):
        self.hosts = Hosts(names)
        self.addCleanup(self.hosts.close)
        self.words, self.join = words, join
        return self.hosts

    def start(self):
        first, port, running = self.hosts.names[0], free_port(), []
        for rank, host in enumerate(self.hosts.names):
            running.append(self.hosts.run(host, [
                ACC_TEST, "--network", "--json", os.path.join(self.folder, host), *PLAIN, f"--num_machines={len(self.hosts.names)}",
                f"--num_processes={len(self.hosts.names)}", f"--machine_rank={rank}", "--main_process_ip", self.hosts.address(first),
                "--main_process_port", str(port), "--insecure", f"--join_timeout={self.join}s", *self.words],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return running

    def end(self, running):
        """[(exit code, text, JSON)] of each host; nothing is left on any."""
        texts = [process.communicate(timeout=LIMIT_S)[0] for process in running]
        for host in self.hosts.names:
            until(lambda: not self.hosts.processes(host), f"the end of all on {host}", 5)
        told = []
        for host in self.hosts.names:
            with open(os.path.join(self.folder, host)) as file:
                told.append(json.load(file))
        return [(process.returncode, text, one) for process, text, one in zip(running, texts, told)]

    def found(self, expected, on_busy=None):
        """What each node's acc-test says, which is the same, with exit code 1. A busy machine may make further pairs slow, so that something
        else is blamed; on_busy: what pairs have all the same. Up to three tries for what is expected."""
        for attempt in range(3):
            done = self.end(self.start())
            for code, text, told in done:
                self.assertEqual(code, 1, text)
                self.assertFalse(told["ok"])
                self.assertEqual(blamed(told), blamed(done[0][2]), text)
            if expected in blamed(done[0][2]):
                break
            self.assertTrue(on_busy, done[0][1])
            self.assertLessEqual(on_busy.items(), troubles_of_pairs(done[0][2]).items(), done[0][1])
        for _, text, told in done:
            for one in blamed(told):
                self.assertRegex(text, r"acc-test: FAILED: network: .*" + re.escape(one))
        return done[0][1]

    def test_two_and_four_machines_are_well(self):
        for names in ("a b", "a b c d"):
            with self.subTest(names=names):
                self.begin(names)
                for attempt in range(3):  # a machine that does much else has slow pairs now and then
                    done = self.end(self.start())
                    if all(code == 0 for code, _, _ in done):
                        break
                for code, text, told in done:
                    self.assertEqual({one for one in blamed(told) if not one.endswith((": slow", ": delayed"))}, set(), text)
                    self.assertEqual(code == 0, not blamed(told), text)
                    pairs = [tuple(one["nodes"]) for one in told["results"] if one["name"] == "pair"]
                    wanted = names.split()
                    self.assertEqual(sorted(pairs), [(one, other) for i, one in enumerate(wanted) for other in wanted[i + 1:]])
                    for one in told["results"]:
                        if one["name"] == "pair":
                            self.assertGreater(min(one["mbit_per_s"]), 0)
                            self.assertGreater(one["rtt_us"], 0)
                self.hosts.close()

    def test_of_two_machines_the_link_is_slow(self):
        hosts = self.begin("a b")
        hosts.slow_between("a", "b")
        hosts.slow_between("b", "a")
        text = self.found("a and b: slow")
        self.assertRegex(text, r"slow +a - b ")
        self.assertIn("where the interfaces have 10 Gbit/s", text)

    def test_of_three_machines_one_is_slow(self):
        self.begin("a b c").slow("b", mbit=20)
        text = self.found("b: slow", on_busy={("a", "b"): "slow", ("b", "c"): "slow"})
        if "b is slow with every partner" in text:
            self.assertRegex(text, r"b is slow with every partner \(a and c\): .* at best, where .* are usual\n +-> look at b: its cable")

    def test_of_four_machines_one_direction_is_slow(self):
        self.begin("a b c d").slow_between("d", "b")
        text = self.found("d to b: slow", on_busy={("b", "d"): "slow"})
        if "with every partner" not in text:
            self.assertRegex(text, r"from d to b: .* Mbit/s, where .* are usual \(b to d: |between b and d: .* and \d\.\d+ Mbit/s, where ")

    def test_of_three_and_four_machines_one_pair_is_broken(self):
        for names in ("a b c", "a b c d"):
            with self.subTest(names=names):
                hosts = self.begin(names, "-T", "2")
                hosts.partition_between("b", "c")
                text = self.found("b and c: broken", on_busy={("b", "c"): "broken"})
                self.assertRegex(text, r"broken +b - c +connect to 10\.77\.0\.3:\d+: no answer\n")
                self.assertIn("look at what lies between b and c", text)
                hosts.close()

    def test_a_node_that_takes_no_connections_is_told_with_the_direction(self):
        hosts = self.begin("a b c")
        hosts._rules("c", "wall", ["ct state new tcp dport != 0 reject with tcp reset"])
        text = self.found("c: one-way", on_busy={("a", "c"): "one-way", ("b", "c"): "one-way"})
        self.assertRegex(text, r"c takes no connection of a and b, but opens them: .*refused|a can't open connections to c, but c can to a: .*refused")

    def test_two_machines_that_don_t_reach_each_other_are_told_by_the_launch(self):
        hosts = self.begin("a b", join=5)
        hosts.partition_between("a", "b")
        done = self.end(self.start())
        for code, text, told in done:
            self.assertEqual((code, told["exit_code"]), (69, 69), text)
        self.assertIn("only 1 of 2 nodes joined", done[0][1])
        self.assertIn("no answer from 10.77.0.1", done[1][1])

    def test_a_rank_that_stands_still_is_named_and_ended(self):
        self.begin("a b c", "-T", "1")
        running = self.start()
        said = ""
        while "3 machines: a, b, c" not in said:  # each rank has said where it is
            said = running[0].stdout.readline()
            self.assertTrue(said, "a ended")
        os.kill(next(pid for pid in self.hosts.processes("c") if self.is_rank(pid)), signal.SIGSTOP)
        done = self.end(running)
        self.assertEqual(done[0][0], 1, done[0][1])
        self.assertIn("c took no part: its rank gave no report", done[0][1])

    @staticmethod
    def is_rank(pid):
        with contextlib.suppress(OSError):  # it ended meanwhile
            return read(f"/proc/{pid}/cmdline").startswith(os.path.join(PROGRAMS.name, "acc-test-worker")) and "\0RANK=" in read(f"/proc/{pid}/environ")
        return False

    def test_one_machine_has_no_network_to_measure(self):
        done = subprocess.run([ACC_TEST, "--network", *PLAIN, "--num_processes=2", "--num_machines=1"], capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("--network measures between machines, and the job has one: give --hosts", done.stderr)


@needs_hosts
class ThroughDaemons(OnDaemons):
    def acc_test(self, *words, user=None, env=None, **options):
        return subprocess.run([*self.at("a", user), ACC_TEST, *PLAIN, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              env={**os.environ, "ACC_AGENT_SOCKET": self.nodes["a"].path, **(env or {})}, cwd="/tmp", **options)

    def test_one_command_checks_three_machines_and_their_ranks_together(self):
        self.begin()
        done = self.acc_test("--hosts", "a:1,b:2,c:1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"acc-test: all is well: 36 checks of 3 machines, 11 checks with 4 ranks, [0-9.]+ s\n\Z")
        for host, ranks in (("a", "1 rank"), ("b", "2 ranks"), ("c", "1 rank")):
            self.assertRegex(done.stdout, rf"(?m)^(ok|warning) +{host} +12 checks of the machine, (\d warnings?, )?{ranks}$")
        self.assertIn("4 ranks on 3 nodes, each there once", done.stdout)

    def test_a_plain_user_s_results_are_json(self):
        self.begin()
        done = self.acc_test("--hosts", "a,b", "--json", "-", user=ALICE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        told = json.loads(done.stdout)
        self.assertEqual((told["ok"], told["ranks"], told["nodes"]), (True, 2, 2))
        self.assertEqual({one["host"] for one in told["machines"]}, {"a", "b"})
        self.assertEqual({one["verdict"] for one in told["results"]}, {"ok"})

    def test_a_config_file_that_starts_a_module_and_keeps_output_in_files_is_checked_as_it_is(self):
        self.begin("a b")
        folder = self.enterContext(tempfile.TemporaryDirectory())
        os.chmod(folder, 0o755)
        path = os.path.join(folder, "cfg.yaml")
        for keys in ("module: true", f"redirects: 3\nlog_dir: {folder}/logs", "local_ranks_filter: 1"):
            with self.subTest(keys=keys):
                with open(path, "w") as file:
                    file.write(keys + "\ndistributed_type: MULTI_CPU\nuse_cpu: true\n")
                done = self.acc_test("--hosts", "a:2,b:2", "--config_file", path)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertRegex(done.stdout, r"acc-test: all is well: 24 checks of 2 machines, 11 checks with 4 ranks, [0-9.]+ s\n\Z")

    def test_the_table_of_bandwidth_comes_back_whole(self):
        self.begin()
        done = self.acc_test("--hosts", "a,b", "--bandwidth", "-b", "8", "-e", "4K", "-f", "8", "-n", "2", "--only", "all_reduce")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual([int(size) for size in re.findall(r"^ +(\d+) +\d+ +f32 +sum", done.stdout, re.M)], [8, 64, 512, 4096])

    def test_a_broken_pair_is_found_by_one_command(self):
        self.begin()
        self.hosts.partition_between("b", "c")
        done = self.acc_test("--hosts", "a,b,c", "--network", "-T", "2", "--json", "-")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("b and c: broken", blamed(json.loads(done.stdout)))

    def test_a_slow_machine_is_found_by_one_command(self):
        self.begin()
        self.hosts.slow("c", mbit=10)
        results = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "results.json")
        done = self.acc_test("--hosts", "a,b,c", "--network", "--json", results)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        told = json.loads(read(results))
        troubles = troubles_of_pairs(told)
        self.assertLessEqual({("a", "c"): "slow", ("b", "c"): "slow"}.items(), troubles.items(), done.stdout)
        self.assertRegex(done.stdout, r"acc-test: FAILED: network: .*c: slow.* \(36 checks of 3 machines, ")
        if troubles["a", "b"] != "slow":  # on a busy machine that pair may be slow as well
            self.assertIn("c is slow with every partner (a and b)", done.stdout)

    def test_a_host_that_can_t_be_reached_is_told(self):
        self.begin("a b")
        done = self.acc_test("--hosts", "a,b,d", "--network")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("nothing was started", done.stderr)
        self.assertRegex(done.stdout, r"acc-test: FAILED: no rank reported, exit code \d+, ")

    def test_ctrl_c_ends_it_on_all_machines(self):
        self.begin()
        process = subprocess.Popen([*self.at("a"), ACC_TEST, *PLAIN, "--hosts", "a,b,c"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "ACC_AGENT_SOCKET": self.nodes["a"].path}, cwd="/tmp")
        line = process.stdout.readline()
        while line and "ranks, backend" not in line:
            line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 130, said)
        for host in "abc":
            until(lambda: all(one["state"] not in ("running", "starting", "stopping") for one in self.jobs(host)), f"the end of the job on {host}", 10)

    def test_words_that_don_t_go_with_hosts_are_refused(self):
        for words, said in ((["--detach"], "--detach: acc-test waits"), (["--local_only"], "--local_only looks at this machine alone"),
                            (["--network", "--bandwidth"], "give one")):
            done = subprocess.run([ACC_TEST, "--hosts", "a,b", *words], capture_output=True, text=True, timeout=LIMIT_S, check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertIn(said, done.stderr)


@needs_hosts
class ThroughTransports(OnHosts):
    def test_ranks_whose_output_a_config_file_redirects_are_heard(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        path = os.path.join(folder, "cfg.yaml")
        for keys in (f"redirects: 3\nlog_dir: {folder}/logs", "local_ranks_filter: 0"):
            with self.subTest(keys=keys):
                with open(path, "w") as file:
                    file.write(keys + "\ndistributed_type: MULTI_CPU\nuse_cpu: true\n")
                done = subprocess.run([ACC_TEST, *PLAIN, "--hosts", self.list(), "--launch_agent", self.agent(), "--config_file", path], capture_output=True,
                                      text=True, timeout=LIMIT_S, check=False, cwd="/tmp")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertRegex(done.stdout, r"acc-test: all is well: 36 checks of 3 machines, 11 checks with 3 ranks, [0-9.]+ s\n\Z")

    def test_without_daemons_acc_launch_is_started_on_the_hosts_not_acc_test(self):
        done = subprocess.run([ACC_TEST, *PLAIN, "--hosts", self.list(), "--launch_agent", self.agent(), "--network"], capture_output=True, text=True,
                              timeout=LIMIT_S, check=False, cwd="/tmp")
        self.assertIn(done.returncode, (0, 1), done.stdout + done.stderr)  # 1: a machine that does much else has slow pairs
        self.assertRegex(done.stdout, r"(?m)^acc-test: (all is well|FAILED: network): .*36 checks of 3 machines, 4 checks with 3 ranks")


if __name__ == "__main__":
    main()
