"""A whole machine that stands still: its guardian, agent and workers are frozen together, or its clocks, too. No worker of it may run
beside the next round where the kernel can prevent that, and none may make a checkpoint valid afterwards."""
import contextlib, os, random, re, signal, subprocess, sys, time, unittest

import harness
import cluster as clusters
from cluster import PAUSED_CLOCK, PYTHON_WORKER, Cluster, ClusterTest
from harness import SLACK, main, processes_with, state_of, until
from hosts import needs_hosts

# Nodes beside the frozen one must not lose each other, however busy the machine is; and one that comes late to the first round would be a
# spare of a job that has room for it.
DEAD, LEASE = 3 * clusters.DEAD, 3 * clusters.LEASE
TIMES = f"--dead_after {DEAD:g}s --lease {LEASE:g}s --join_timeout 60s --last_call 5s --grace 2s --restart_delay 0"
DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs")


def freeze(cluster, host):
    """SIGSTOP to all processes of the host. Returns them."""
    pids = cluster.hosts.processes(host)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return pids


def thaw(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


@needs_hosts
class FrozenMachine(ClusterTest):
    def running(self, names, workers, **options):
        cluster = self.cluster(names, flags="--max_restarts 9", times=TIMES, **options)
        cluster.start_all()
        cluster.wait_round(0, workers)
        return cluster

    def freeze_and_wake(self, cluster, host, left, order):
        """`left`: workers of the next round."""
        number = max(life.round for life in cluster.living())
        pids = freeze(cluster, host)
        lives = cluster.wait_after(number, left)
        self.assertNotIn(host, {life.node for life in lives})
        # Dead while all of the machine stands still: by the kernel.
        self.assertEqual(cluster.living(host), [], cluster.tell())
        order(pids)
        thaw(pids)
        return lives[0].round

    def test_its_workers_are_dead_before_it_wakes_up(self):
        cluster = self.running("a b c", 6, slots=2, nnodes="2:3")
        rng = random.Random(7)
        said = lambda: [len(re.findall(words, cluster.nodes["c"].stderr)) for words in ("lease over|the lease is over", "spare")]
        for order in (list.sort, lambda pids: pids.sort(reverse=True), rng.shuffle):
            before = said()
            number = self.freeze_and_wake(cluster, "c", 4, order)
            cluster.wait(lambda: all(now > then for now, then in zip(said(), before)), "c to say that its lease is over, and that it is a spare")
            cluster.kill_worker(0)
            cluster.wait_after(number, 6)
        self.stop(cluster)

    def test_so_for_the_machine_of_the_coordinator(self):
        cluster = self.running("a b c d e", 5, nnodes="3:5")
        number = self.freeze_and_wake(cluster, "a", 4, list.sort)
        cluster.nodes["a"].wait_text(r"lease over|the lease is over", r"no longer the coordinator|coordinator is now on")
        cluster.kill_worker(1)
        cluster.wait_after(number, 5)
        self.stop(cluster)

    def test_a_machine_whose_preloader_ended_with_its_lease_starts_warm_again(self):
        cluster = self.cluster("a b c", nnodes="2:3", flags="--max_restarts 9 --preload ctypes,json", times=TIMES)
        for host in cluster.names:
            cluster.start(host, program=[PYTHON_WORKER], env={"PYTHON_EXEC": sys.executable})
        cluster.wait_round(0, 3)
        number = self.freeze_and_wake(cluster, "c", 2, list.sort)
        cluster.nodes["c"].wait_text(r"lease over|the lease is over", "spare")
        cluster.kill_worker(0)
        cluster.wait_after(number, 3)
        self.assertNotIn("cold", cluster.nodes["c"].stderr)
        worker = next(life.pid for life in cluster.living() if life.node == "c")
        others = lambda: [pid for pid in harness.children_of(cluster.nodes["c"].agent) if pid != worker]
        until(lambda: len(others()) == 1, lambda: f"the preloader that forked it alone: {others()}")
        self.stop(cluster)

    def test_a_job_on_one_machine_has_no_lease_timer(self):
        job = self.job("--num_processes 1", "mark=up hold")
        job.wait_events("up", 1)
        self.assertEqual(len(harness.children_of(job.pid)), 1)


def is_current_from_the_docs():
    with open(os.path.join(DOCS, "worker-socket.md")) as f:
        return re.search(r"```python\n(import os, socket, time\n.*?)```", f.read(), re.S).group(1)


def is_asking(pid):
    """It has ended, or waits at its agent's socket, which it does nowhere else."""
    if state_of(pid) in (None, "Z", "X"):
        return True
    with contextlib.suppress(OSError):
        return "poll" in harness.read(f"/proc/{pid}/wchan")
    return True


WRITER = """
import sys
log = os.open(os.environ["WRITES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
attempt, node = os.environ["ACC_ROUND"], os.environ["HISTORY_NODE"]
tell = lambda word: os.write(log, f"{word} {attempt} {node}\\n".encode())
tell("start")
checkpoint = os.environ["WRITES"] + ".ckpt"
temporary = f"{checkpoint}.{attempt}.{node}"
while True:
    with open(temporary, "w") as f:
        f.write(attempt)
    try:
        if is_current(2):
            os.replace(temporary, checkpoint)
            tell("wrote")
        else:
            tell("refused")
    except OSError:
        tell("unknown")
    time.sleep(0.01)
"""


@needs_hosts
class PausedMachine(ClusterTest):
    """A virtual machine that is paused, played: all of it is stopped, and its clocks are set back before it goes on. The kernel of
    such a machine stands still, too, so its lease timer is taken away (paused_clock.so)."""

    def start(self, names):
        cluster = self.test_cluster = Cluster(names, nnodes="2:3", flags="--max_restarts 9", times=TIMES)
        self.addCleanup(cluster.close)
        self.writes = os.path.join(cluster.folder, "writes")
        self.script = os.path.join(cluster.folder, "writer.py")
        harness.write(self.script, is_current_from_the_docs() + WRITER)
        self.clock = os.path.join(cluster.folder, "clock")
        for host in cluster.names:
            fake = {**harness.preloading(PAUSED_CLOCK), "PAUSED_CLOCK_FILE": f"{self.clock}.{host}"}
            cluster.start(host, env={"WRITES": self.writes, **fake}, program=["--no_python", sys.executable, self.script])
        return cluster

    def lines(self):
        try:
            return [line.split() for line in harness.read(self.writes).splitlines()]
        except OSError:
            return []

    def wait_written(self, nodes, after=-1):
        """Until all of `nodes` have made a checkpoint of one round after `after` valid. Returns that round."""
        def found():
            rounds = {}
            for word, attempt, node in self.lines():
                if word == "wrote" and int(attempt) > after:
                    rounds.setdefault(int(attempt), set()).add(node)
            return [number + 1 for number, done in rounds.items() if done >= set(nodes)]
        try:
            return until(found, f"a checkpoint of {sorted(nodes)} after round {after}", 20)[0] - 1
        except AssertionError as late:
            raise AssertionError(f"{late}; the last lines: {self.lines()[-12:]}\n{self.test_cluster.tell()}") from None

    def workers(self, cluster, host):
        here = set(cluster.hosts.processes(host))
        return [pid for pid, command in processes_with(cluster.token).items() if pid in here and self.script in command and "acc-launch" not in command]

    def pause(self, host, wall_is_right, network=True):
        cluster = self.start("a b c")
        first = self.wait_written("abc")
        # Nothing reaches a machine that is paused, and all of it stops at one moment. Here the network goes first and the workers go
        # last, or this moment would last as long as an answer is on its way: the one in which a pause is not noticed.
        cluster.hosts.partition(host)
        workers = self.workers(cluster, host)
        pids = sorted(cluster.hosts.processes(host), key=lambda pid: (pid in workers, pid))
        for pid in pids:
            if pid in workers:
                # With "yes" in hand it would write when it goes on: a pause at that moment nobody notices. Of its next question it gets no answer.
                until(lambda: is_asking(pid), "a worker's next question", 10)
            os.kill(pid, signal.SIGSTOP)
        until(lambda: all(state_of(pid) in (None, "T", "Z", "X") for pid in pids), "a machine that stands still", 10)
        begun = time.monotonic_ns()  # its clocks stand at this moment, or would go backwards: no machine's do
        others = set("abc") - {host}
        second = self.wait_written(others, first)
        until(lambda: time.monotonic_ns() - begun > 1.5e9 * LEASE, "a pause", 20)
        stood = time.monotonic_ns() - begun
        harness.write(f"{self.clock}.{host}", f"{stood} {0 if wall_is_right else stood}")
        before = len(self.lines())
        if network:
            cluster.hosts.heal(host)
        woke = time.monotonic()
        thaw(sorted(pids, reverse=True))
        until(lambda: not self.workers(cluster, host), "the end of its workers", 10)
        took = time.monotonic() - woke
        print(f"\n  workers of a paused machine lived on for {took:.2f} s (clock {'set right' if wall_is_right else 'wrong'}, "
              f"{'with' if network else 'without'} network, lease {LEASE:g} s)", flush=True)
        self.assertLess(took, LEASE + 3.0 * SLACK)
        after = self.lines()[before:]
        stale = [line for line in after if line[0] == "wrote" and int(line[1]) < second]
        self.assertEqual(stale, [], f"a stale rank made a checkpoint valid: {after}\n{cluster.tell()}")
        self.assertGreaterEqual(int(harness.read(self.writes + ".ckpt")), second, after)
        for name in others:
            self.assertNotIn("SIGKILL", cluster.nodes[name].stderr, cluster.tell())
        if network:
            node = cluster.nodes[host]
            until(lambda: "spare" in node.stderr or "attempt" in node.stderr.partition("the coordinator is now on")[2], f"{host} to be back", 30)
        return cluster, took

    def test_a_worker_of_it_makes_no_checkpoint_valid(self):
        self.stop(self.pause("c", wall_is_right=False)[0])

    def test_neither_rank_0_beside_the_coordinator(self):
        self.stop(self.pause("a", wall_is_right=False)[0])

    def test_nor_without_a_network(self):
        self.pause("a", wall_is_right=False, network=False)

    def test_a_wall_clock_that_was_set_right_ends_the_lease_soon(self):
        cluster, _ = self.pause("c", wall_is_right=True, network=False)
        cluster.nodes["c"].wait_text("the wall clock went forward by")

    def test_the_line_of_shell_does_the_same(self):
        with open(os.path.join(DOCS, "worker-socket.md")) as f:
            line = re.search(r"^\[ .*grep -q \^number.*$", f.read(), re.M).group(0)
        folder = self.job("--num_processes 1", "exit=0").folder
        script = os.path.join(folder, "write.sh")
        harness.write(script, f"cd {folder}; echo $ACC_ROUND > ckpt.$ACC_ROUND; [ -z \"$STALE\" ] || ACC_ROUND=7 RANK=0; touch ckpt.7; {line}\n", 0o755)
        for stale, expected in (("", "0\n"), ("1", None)):
            for name in ("ckpt", "ckpt.0", "ckpt.7"):
                if os.path.exists(os.path.join(folder, name)):
                    os.unlink(os.path.join(folder, name))
            done = subprocess.run([harness.ACC, "--num_processes", "1", "--no_python", "sh", script], env={**os.environ, "STALE": stale}, capture_output=True, text=True)
            path = os.path.join(folder, "ckpt")
            self.assertEqual(harness.read(path) if os.path.exists(path) else None, expected, done.stderr)
        subprocess.run(["sh", script], env={"PATH": os.environ["PATH"], "ACC_ROUND": "0"}, check=True)  # without acc-launch
        self.assertEqual(harness.read(os.path.join(folder, "ckpt")), "0\n")


if __name__ == "__main__":
    main()
