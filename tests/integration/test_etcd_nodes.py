"""Jobs whose coordinator is found and chosen through a real etcd: on one host over loopback, and on several. Each test's workers prove
P1 and P3 by their diaries. Skips where Debian's etcd-server and etcd-client aren't installed."""
import os, shutil, signal, subprocess, tempfile, time, unittest

from cluster import HISTORY, TIMES, ClusterTest
from harness import SLACK, Job, JobTest, free_port, main, own_token, state_of, until
from hosts import needs_hosts

import history  # noqa: E402

RESTARTS = "--max_restarts 5"
# The last of several to be started on a busy machine is no spare.
UNHURRIED = TIMES.replace("--last_call 1s", "--last_call 4s")
# Of jobs that lose no host: longer than a machine stands still now and then.
STEADY = f"--dead_after {5 * SLACK:g}s --lease {11 * SLACK:g}s --join_timeout {20 * SLACK:g}s --last_call 4s --grace 2s --restart_delay 0"
needs_etcd = unittest.skipUnless(shutil.which("etcd") and shutil.which("etcdctl"), "not installed: etcd, etcdctl (Debian: etcd-server etcd-client)")


class Etcd:
    """One etcd server; `wrap`: a command prefix that puts it on another host; `listen`: where it serves, else at `address`; `flags`: more of etcd's own;
    `client`: of etcdctl."""

    def __init__(self, address, wrap=(), *, scheme="http", listen=None, flags=(), client=()):
        self.wrap, self.folder, self.client = list(wrap), tempfile.mkdtemp(prefix="acc-etcd-"), list(client)
        port, peers = free_port(), f"http://{address}:{free_port()}"
        self.url = f"{scheme}://{address}:{port}"
        serves = f"{scheme}://{listen or address}:{port}"
        self.command = [*self.wrap, "etcd", "--data-dir", os.path.join(self.folder, "data"), "--listen-client-urls", serves, "--advertise-client-urls", self.url,
                        "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}", *flags]
        self.start()
        version = subprocess.run(["etcd", "--version"], capture_output=True, text=True).stdout.splitlines()[0]
        print(f"\n  {version}, pid {self.process.pid}, {self.url}", flush=True)

    def start(self):
        with open(os.path.join(self.folder, "log"), "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        until(lambda: self.ctl("endpoint", "health").returncode == 0, "etcd to serve", 30)

    def restart(self):
        self.process.kill()
        self.process.wait()
        self.start()

    def ctl(self, *words):
        return subprocess.run([*self.wrap, "etcdctl", f"--endpoints={self.url}", "--command-timeout=2s", *self.client, *words], capture_output=True, text=True,
                              errors="replace", env={**os.environ, "ETCDCTL_API": "3"})

    def get(self, *words):
        """An etcdctl without an answer, on a busy machine, is no etcd without keys."""
        def answered():
            done = self.ctl("get", *words)
            return done if done.returncode == 0 else None
        return until(answered, "etcd's answer").stdout

    def keys(self):
        return self.get("--prefix", "/acc/", "--keys-only").split()

    def term(self):
        return int(self.get("--print-value-only", "/acc/none/term") or 0)

    def leader(self):
        return self.get("--print-value-only", "/acc/none/leader")

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@needs_etcd
class OneHost(JobTest):
    """Several agents on this host, as any user may start them."""

    def setUp(self):
        super().setUp()
        self.diaries = tempfile.mkdtemp(prefix="acc-diaries-")
        self.addCleanup(shutil.rmtree, self.diaries, True)
        self.jobs = {}

    def start(self, name, endpoint, words, more=""):
        job = Job(f"--cpu --nnodes 2 --nproc_per_node 2 --rdzv_backend etcd --rdzv_endpoint {endpoint} --node_name {name} {STEADY} {more}", words,
                  program=["--no_python", HISTORY], token=own_token("etcd"), env={"HISTORY_DIR": self.diaries, "HISTORY_NODE": name})
        self.addCleanup(job.close)
        self.jobs[name] = job
        return job

    def test_two_agents_meet_through_etcd_and_leave_nothing_there(self):
        etcd = Etcd("127.0.0.1")
        self.addCleanup(etcd.close)
        for backend in ("etcd", "etcd-v2", "etcd-v3"):
            for name in "ab":
                self.start(name, etcd.url, "run=300ms", f"--rdzv_backend {backend} --rdzv_id {backend}")
            for name, job in self.jobs.items():
                self.assertEqual(job.wait(), 0, f"{name}:\n{job.stderr}")
            lives = history.load(self.diaries)
            self.assertEqual(sorted(life.rank for life in lives), [0, 1, 2, 3])
            self.assertEqual(etcd.keys(), [])
            for life in os.listdir(self.diaries):
                os.remove(os.path.join(self.diaries, life))

    def test_the_table_is_in_etcd_before_a_worker_runs(self):
        etcd = Etcd("127.0.0.1")
        self.addCleanup(etcd.close)
        for name in "ab":
            self.start(name, etcd.url, "run=60s")
        until(lambda: len(history.load(self.diaries)) == 4, "four workers", 10)
        self.assertEqual(etcd.keys(), ["/acc/none/leader", "/acc/none/table", "/acc/none/term"])
        table = etcd.get("--print-value-only", "/acc/none/table")
        self.assertTrue("a" in table and "b" in table, table)
        self.jobs["b"].process.send_signal(signal.SIGTERM)
        for job in self.jobs.values():
            self.assertEqual(job.wait(), 143, job.stderr)
        self.assertEqual(etcd.keys(), [])

    def test_a_spare_that_slept_through_the_end_of_its_job_ran_it_again(self):
        etcd = Etcd("127.0.0.1")
        self.addCleanup(etcd.close)
        elastic, work = f"--nnodes 1:2 --dead_after {SLACK:g}s", f"run={8 * SLACK:g}s"
        for name in "ab":
            self.start(name, etcd.url, work, elastic)
        until(lambda: len(history.load(self.diaries)) == 4, "four workers", 10)
        spare = self.start("c", etcd.url, work, elastic)
        until(lambda: "as a spare" in spare.stderr, "a spare", 10)
        os.kill(spare.agent, signal.SIGSTOP)  # the coordinator closes its connection after a second: no word of the end waits there
        for name in "ab":
            self.assertEqual(self.jobs[name].wait(), 0, self.jobs[name].stderr)
        self.assertEqual(etcd.keys(), [])
        os.kill(spare.agent, signal.SIGCONT)
        self.assertEqual(spare.wait(), 69, spare.stderr)
        self.assertIn("etcd knows nothing of job 'none' any more", spare.stderr)
        self.assertEqual(len(history.load(self.diaries)), 4)
        self.assertEqual(etcd.keys(), [])

    def test_without_etcd_the_endpoint_and_the_cure_are_told_within_10_seconds(self):
        port = free_port()
        job = self.start("a", f"http://127.0.0.1:{port}", "run=1s", "--join_timeout 3s")
        until(lambda: f"127.0.0.1:{port}" in job.stderr and "Start etcd there" in job.stderr, "a word about etcd", 10)
        self.assertEqual(job.wait(), 69, job.stderr)
        self.assertIn("no coordinator named by etcd within 3 s", job.stderr)

    def test_an_unknown_name_is_told_too(self):
        job = self.start("a", "http://no-such-host.invalid:2379", "run=1s", "--join_timeout 3s --insecure")
        until(lambda: "no-such-host.invalid" in job.stderr and "--rdzv_endpoint" in job.stderr, "a word about etcd", 10)
        self.assertEqual(job.wait(), 69, job.stderr)

    def test_an_earlier_run_that_crashed_is_no_part_of_the_next_one(self):
        etcd = Etcd("127.0.0.1")
        self.addCleanup(etcd.close)
        for name in "ab":
            self.start(name, etcd.url, "run=60s")
        until(lambda: len(history.load(self.diaries)) == 4, "four workers", 10)
        for pid in [pid for job in self.jobs.values() for pid in (job.agent, job.pid)]:
            os.kill(pid, signal.SIGKILL)  # nobody is left to tidy up; the workers go with their agents
        for job in self.jobs.values():
            job.wait()
        self.assertIn("/acc/none/table", etcd.keys())
        for name in "ab":
            self.start(name, etcd.url, "run=300ms")
        for job in self.jobs.values():
            self.assertEqual(job.wait(), 0, job.stderr)
            self.assertIn("earlier run", job.stderr, f"a:\n{self.jobs['a'].stderr}\nb:\n{self.jobs['b'].stderr}\n{history.story(history.load(self.diaries))}")
        lives = history.load(self.diaries)
        self.assertEqual(history.violations(lives), [])
        self.assertEqual({life.restarts for life in lives}, {0}, "no budget is inherited")
        self.assertEqual(sorted(life.rank for life in lives if life.round == 1), [0, 1, 2, 3])
        self.assertEqual(etcd.keys(), [])


@needs_hosts
@needs_etcd
class SeveralHosts(ClusterTest):
    """etcd has a host of its own, e."""

    def with_etcd(self, names, more="", **options):
        """Starts agents on `names`; `more`: hosts without one yet."""
        options.setdefault("flags", RESTARTS)
        options.setdefault("times", UNHURRIED)
        cluster = self.cluster(f"{names} {more} e", backend="etcd", **options)
        self.etcd = Etcd(cluster.hosts.address("e"), cluster.hosts.wrap("e"))
        self.addCleanup(self.etcd.close)
        cluster.endpoint = self.etcd.url
        for host in names.split():
            cluster.start(host)
        return cluster

    def leading(self, cluster):
        """The host of the coordinator, as etcd has it."""
        leader = until(self.etcd.leader, "a leader", 10)
        return next(host for host in cluster.nodes if f'"node":"{host}"' in leader)

    def assert_untouched(self, cluster, before):
        self.assertEqual({life.pid for life in cluster.living()}, {life.pid for life in before}, cluster.tell())

    def pass_time(self, seconds):
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > seconds, "time to pass", seconds + 5)

    def test_a_fixed_number_of_hosts(self):
        cluster = self.with_etcd("a b", slots=2, nnodes="2", words="run=500ms", times=STEADY)
        self.all_end(cluster, 0)
        lives = cluster.lives()
        self.assertEqual(sorted((life.node, life.rank) for life in lives), [("a", 0), ("a", 1), ("b", 2), ("b", 3)])
        self.assertEqual({life.master for life in lives}, {cluster.hosts.address("a")})
        self.assertEqual(self.etcd.keys(), [])

    def test_a_node_with_etcd_whose_own_name_is_127_0_1_1_in_its_etc_hosts_announced_its_loopback_to_the_others(self):
        cluster = self.cluster("a b", backend="etcd", times=STEADY)
        cluster.hosts.hosts_entry("a", {"nodea": "127.0.1.1"})
        cluster.hosts.hosts_entry("b", {"nodea": cluster.hosts.address("a")})
        self.etcd = Etcd(cluster.hosts.address("a"), cluster.hosts.wrap("a"), listen="0.0.0.0")
        self.addCleanup(self.etcd.close)
        cluster.endpoint = self.etcd.url.replace(cluster.hosts.address("a"), "nodea")
        cluster.start("a").wait_text(rf"nodea is 127\.0\.1\.1 on this machine .*this node announces {cluster.hosts.address('a')}")
        self.assertIn(f'"host":"{cluster.hosts.address("a")}"', until(self.etcd.leader, "a leader", 10))
        cluster.start("b")
        self.assertEqual({life.master for life in cluster.wait_round(0, 2)}, {cluster.hosts.address("a")})
        self.stop(cluster)

    def test_a_node_with_etcd_on_loopback_and_without_a_network_is_told_the_cure(self):
        cluster = self.cluster("a b", backend="etcd", times="--join_timeout 3s")
        cluster.hosts.hosts_entry("a", {"nodea": "127.0.1.1"})
        cluster.hosts.link("a", False)
        cluster.endpoint = "http://nodea:2379"
        cluster.start("a").wait_text(r"nodea is 127\.0\.1\.1 on this machine .*give --local_addr ADDRESS")
        cluster.nodes["a"].expect(69)

    def test_a_crash_restarts_all_and_a_late_host_is_taken_in(self):
        cluster = self.with_etcd("a b", nnodes="2:3", more="c", times=STEADY)
        cluster.wait_round(0, 2)
        cluster.start("c").wait_text("spare")
        cluster.kill_worker(1)
        lives = cluster.wait_round(1, 3)
        self.assertEqual({life.restarts for life in lives}, {1})
        self.assertEqual([life.node for life in sorted(lives, key=lambda life: life.rank)], ["a", "b", "c"])
        self.stop(cluster)
        self.assertEqual(self.etcd.keys(), [])

    def test_of_two_hosts_the_survivor_takes_over_and_goes_on(self):
        for nnodes in ("1:2", "2"):
            cluster = self.with_etcd("a b", nnodes=nnodes, flags=f"{RESTARTS}")
            cluster.wait_round(0, 2)
            lost = self.leading(cluster)
            left = "b" if lost == "a" else "a"
            begun = time.monotonic()
            cluster.hosts.end_processes(lost)
            cluster.nodes[left].wait_text("takes over as coordinator", "term 2", deadline=10)
            print(f"\n  coordinator killed to a new one: {time.monotonic() - begun:.2f} s", flush=True)
            if nnodes == "2":
                cluster.start(lost)
            lives = cluster.wait_after(0, 2 if nnodes == "2" else 1)
            self.assertEqual({life.node for life in lives}, {"a", "b"} if nnodes == "2" else {left})
            self.assertGreaterEqual(self.etcd.term(), 2)
            self.stop(cluster)
            until(lambda: self.etcd.keys() == [], f"the end of all keys: {self.etcd.keys()}", 5)

    def test_a_coordinator_that_is_cut_off_from_everything_is_replaced_after_its_workers_end(self):
        cluster = self.with_etcd("a b c", nnodes="2:3")
        cluster.wait_round(0, 3)
        lost = self.leading(cluster)
        cluster.hosts.partition(lost)
        lives = cluster.wait_after(0, 2, deadline=20)
        self.assertEqual({life.node for life in lives}, {"a", "b", "c"} - {lost})
        self.assertLess(max(life.last for life in cluster.lives(0) if life.node == lost), min(life.start for life in lives))
        cluster.hosts.heal(lost)
        cluster.nodes[lost].wait_text("spare", deadline=10)
        cluster.kill_worker(0)
        self.assertEqual({life.node for life in cluster.wait_after(lives[0].round, 3)}, {"a", "b", "c"})
        self.stop(cluster)

    def test_a_frozen_coordinator_is_replaced_and_is_a_member_when_it_thaws(self):
        cluster = self.with_etcd("a b", nnodes="1:2")
        cluster.wait_round(0, 2)
        lost = self.leading(cluster)
        _, agent = cluster.nodes[lost].guardian_and_agent()
        os.kill(agent, signal.SIGSTOP)
        self.addCleanup(lambda: state_of(agent) == "T" and os.kill(agent, signal.SIGCONT))
        lives = cluster.wait_after(0, 1, deadline=20)
        self.assertNotEqual({life.node for life in lives}, {lost})
        os.kill(agent, signal.SIGCONT)
        cluster.nodes[lost].wait_text("no longer the coordinator", "spare", deadline=10)
        cluster.kill_worker(0)
        self.assertEqual({life.node for life in cluster.wait_after(lives[0].round, 2)}, {"a", "b"})
        self.stop(cluster)

    def test_a_coordinator_that_only_loses_etcd_hands_over_and_no_worker_notices(self):
        cluster = self.with_etcd("a b", nnodes="2", times="--dead_after 4s --lease 16s --grace 1s")
        before = cluster.wait_round(0, 2)
        lost = self.leading(cluster)
        left = "b" if lost == "a" else "a"
        cluster.hosts.partition_between(lost, "e")
        cluster.nodes[left].wait_text("takes over as coordinator", deadline=10)
        self.pass_time(17 * SLACK)
        self.assert_untouched(cluster, before)
        self.assertEqual(self.leading(cluster), left)
        cluster.hosts.heal(lost)
        self.stop(cluster)

    def test_a_short_silence_of_etcd_is_no_matter(self):
        # With 4 s for the leader: a busy machine makes more of the 0.8 s.
        cluster = self.with_etcd("a b", nnodes="2", times="--dead_after 4s --lease 9s --grace 1s")
        before = cluster.wait_round(0, 2)
        self.etcd.freeze()
        self.pass_time(0.8)
        self.etcd.thaw()
        self.pass_time(3)
        self.assert_untouched(cluster, before)
        self.assertEqual(self.etcd.term(), 1)
        self.stop(cluster)

    def test_a_silence_longer_than_the_leaders_time_and_shorter_than_the_lease_costs_no_worker(self):
        cluster = self.with_etcd("a b", nnodes="2", times="--dead_after 4s --lease 18s --grace 1s")
        before = cluster.wait_round(0, 2)
        leading = self.leading(cluster)
        self.etcd.freeze()
        cluster.nodes[leading].wait_text("no longer the coordinator", deadline=8)
        self.pass_time(1)
        self.etcd.thaw()
        until(lambda: any("takes over as coordinator" in node.stderr for node in cluster.nodes.values()), f"a coordinator\n{cluster.tell()}", 8)
        self.pass_time(19 * SLACK)
        self.assert_untouched(cluster, before)
        self.stop(cluster)

    def test_with_etcd_gone_for_good_the_workers_end_by_their_lease(self):
        cluster = self.with_etcd("a b", nnodes="2", times=TIMES.replace("--join_timeout 20s", "--join_timeout 8s"))
        cluster.wait_round(0, 2)
        self.etcd.process.kill()
        cluster.wait(lambda: not cluster.living(), "the end of all workers", 6)
        self.all_end(cluster, 69, 16)
        for node in cluster.nodes.values():
            self.assertIn(self.etcd.url, node.stderr)


if __name__ == "__main__":
    main()
