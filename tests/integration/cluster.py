"""A job on several hosts (hosts.py), whose workers keep diaries (tests/support/history_worker.cpp), and what tests ask about it.

    class Some(ClusterTest):
        def test_it(self):
            cluster = self.cluster("a b c", slots=2)
            cluster.start_all()
            cluster.wait_round(0, 6)

At the end of every test the diaries must prove P1 and P3, and no process may be left on any host.
"""
import contextlib, os, re, shutil, signal, subprocess, sys, tempfile, time

import harness
from harness import BIN, PATIENCE, PROGRAMS, SLACK, Job, JobTest, own_token, state_of, until
from hosts import Hosts

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../chaos"))
import history  # noqa: E402

HISTORY = shutil.copy(os.path.join(BIN, "history_worker"), PROGRAMS.name)
# As HISTORY, a script: what --preload starts.
PYTHON_WORKER = shutil.copy(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support/history_worker.py"), PROGRAMS.name)
PAUSED_CLOCK = shutil.copy(os.path.join(BIN, "paused_clock.so"), PROGRAMS.name)
WALL_CLOCK = shutil.copy(os.path.join(BIN, "wall_clock.so"), PROGRAMS.name)
NO_IPV6 = shutil.copy(os.path.join(BIN, "no_ipv6.so"), PROGRAMS.name)
PORT = 29400
# Short, so that a test is: a lost node is noticed after 1 s, its lease is over after 2 s; half of it was too
# little for a machine that stands still for a second now and then.
DEAD, LEASE = 1.0 * SLACK, 2.0 * SLACK
TIMES = f"--dead_after {DEAD * 1000:.0f}ms --lease {LEASE * 1000:.0f}ms --join_timeout 20s --last_call 1s --grace 2s --restart_delay 0"


class Node(Job):
    """One acc-launch on one host. Its workers' rows are those of the whole job."""

    def __init__(self, cluster, host, flags, words, **options):
        self.host, self.cluster = host, cluster
        environment = {"HISTORY_DIR": cluster.diaries, "HISTORY_NODE": host, "ACC_SECRET_FILE": cluster.secret, "XDG_CONFIG_HOME": cluster.folder,
                       **options.pop("env", {})}
        options.setdefault("program", ["--no_python", HISTORY])
        options.setdefault("token", cluster.token)  # nodes whose arguments differ are warned of it
        super().__init__(flags, words, env={key: value for key, value in environment.items() if value is not None}, wrap=cluster.hosts.wrap(host), **options)

    def all_alive(self):
        """The launcher and all that it started, on this host alone: the words of the command line are those of the whole job."""
        here = set(self.cluster.hosts.processes(self.host))
        return {pid: command for pid, command in super().all_alive().items() if pid in here}

    @property
    def agent(self):
        """Not what the wrapping shell started before it became the guardian."""
        for pid in harness.children_of(self.pid):
            with contextlib.suppress(OSError):
                if harness.read(f"/proc/{pid}/cmdline").startswith(harness.ACC):
                    return pid
        return None

    def guardian_and_agent(self):
        """The agent appears a moment after its guardian."""
        return self.pid, until(lambda: self.agent, f"the agent on {self.host}", 10)

    def expect(self, code, deadline=20.0):
        found = self.wait(deadline)
        assert found == code, f"{self.host}: exit code {found}, expected {code}:\n{self.stderr}"
        return self

    def wait_text(self, *patterns, deadline=10.0):
        """Until the launcher has said all of these (regular expressions)."""
        def missing():
            return [pattern for pattern in patterns if not re.search(pattern, self.stderr)]
        end = time.monotonic() + deadline * PATIENCE
        while missing() and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        assert not missing(), f"{self.host} (exit {self.process.poll()}) did not say {missing()} in {deadline * PATIENCE:g} s:\n{self.cluster.tell()}"


class Cluster:
    def __init__(self, names, *, slots=1, nnodes=None, backend="tcp", flags="", words="", secret=True, times=TIMES, endpoint=None):
        self.hosts = Hosts(names)
        self.names = self.hosts.names
        self.slots, self.backend, self.flags, self.words, self.times = slots, backend, flags, words, times
        self.nnodes = nnodes or str(len(self.names))
        self.endpoint = endpoint or f"{self.hosts.address(self.names[0])}:{PORT}"
        self.folder = tempfile.mkdtemp(prefix="acc-cluster-")
        self.token = own_token(os.path.basename(self.folder))
        self.diaries = os.path.join(self.folder, "diaries")
        os.mkdir(self.diaries)
        self.secret = None
        if secret:
            self.secret = os.path.join(self.folder, "secret")
            subprocess.run([harness.ACC, "--make_secret", self.secret], check=True, capture_output=True)
        self.nodes = {}
        self.replaced = []  # nodes of hosts that were started again
        self.known = {}  # path of a diary: its Life, None once the process is gone

    def flags_for(self, host):
        rank = self.names.index(host)
        if self.backend == "static":
            total = self.slots * len(self.names)
            where = (f"--num_machines {len(self.names)} --num_processes {total} --machine_rank {rank} "
                     f"--main_process_ip {self.hosts.address(self.names[0])} --main_process_port {PORT}")
        else:
            where = f"--nnodes {self.nnodes} --nproc_per_node {self.slots} --rdzv_backend {self.backend} --rdzv_endpoint {self.endpoint} --node_name {host}"
        return f"--cpu --num_cpu_threads_per_process 1 {where} {self.times} {'' if self.secret else '--insecure'} {self.flags}"

    def start(self, host, more="", words=None, **options):
        """`more`: further flags; a flag that stands twice counts the second time."""
        if host in self.nodes:
            self.replaced.append(self.nodes[host])
            self.nodes[host].process.poll()
        node = Node(self, host, f"{self.flags_for(host)} {more}", self.words if words is None else words, **options)
        self.nodes[host] = node
        return node

    def start_all(self, **options):
        return [self.start(host, **options) for host in self.names]

    # ---- the workers ----
    def lives(self, number=None):
        return [life for life in history.load(self.diaries) if number in (None, life.round)]

    def living(self, host=None):
        """Workers that are processes now, as their first lines say (`last` is not read)."""
        for path in history.diaries(self.diaries):
            if path not in self.known:
                life = history.read_life(path, 1024)
                if life:
                    self.known[path] = life
        for path, life in self.known.items():
            if life and not self._lives(life):
                self.known[path] = None
        return [life for life in self.known.values() if life and host in (None, life.node)]

    def _lives(self, life):
        try:
            with open(f"/proc/{life.pid}/cmdline") as f:
                return self.token in f.read() and state_of(life.pid) not in (None, "Z", "X")
        except OSError:
            return False

    def wait_round(self, number, workers, deadline=15.0):
        """Until that many workers of that round live; returns them."""
        def enough():
            ended = {host: node.process.returncode for host, node in self.nodes.items() if node.process.poll() is not None}
            here = [life for life in self.living() if life.round == number]
            if len(here) < workers and len(ended) == len(self.nodes):
                raise AssertionError(f"all nodes ended before round {number}: {ended}\n{self.tell()}")
            return here if len(here) == workers else None
        return self.wait(enough, f"{workers} workers of round {number}", deadline)

    def wait_after(self, number, workers, deadline=15.0):
        """As wait_round, for any round after `number`."""
        def enough():
            rounds = history.by_round(life for life in self.living() if life.round > number)
            return next((members for members in rounds.values() if len(members) == workers), None)
        return self.wait(enough, f"{workers} workers of a round after {number}", deadline)

    def wait(self, condition, what, deadline=15.0):
        end = time.monotonic() + deadline * PATIENCE
        while True:
            is_late = time.monotonic() > end  # before the look: this process may stand still, too
            if value := condition():
                break
            if is_late:
                raise AssertionError(f"waited {deadline * PATIENCE:g} s for {what}\n{self.tell()}")
            time.sleep(0.01)
        return value

    def tell(self):
        """Everything that helps to understand a failure."""
        said = "\n".join(f"--- {host} (exit {node.process.poll()}):\n{node.stderr}" for host, node in self.nodes.items())
        return f"{said}\n--- workers:\n{history.story(self.lives())}"

    # ---- faults ----
    def kill_worker(self, rank, signo=signal.SIGKILL):
        life = next(life for life in self.living() if life.rank == rank)
        os.kill(life.pid, signo)
        return life

    def close(self):
        for node in [*self.nodes.values(), *self.replaced]:
            node.close()
        self.hosts.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class ClusterTest(JobTest):
    def cluster(self, names, **options):
        cluster = Cluster(names, **options)
        self.addCleanup(cluster.close)
        self.addCleanup(self.check_history, cluster)
        return cluster

    def check_history(self, cluster):
        self.assertEqual(history.violations(cluster.lives()), [], history.story(cluster.lives()))

    def all_end(self, cluster, code, deadline=20.0, hosts=None):
        for host in hosts or cluster.nodes:
            found = cluster.nodes[host].wait(deadline)
            self.assertEqual(found, code, f"{host}:\n{cluster.tell()}")
        for host in hosts or cluster.nodes:
            until(lambda: not cluster.hosts.processes(host), f"the end of all processes on {host}: {cluster.hosts.processes(host)}", 10)

    def stop(self, cluster):
        """Ends a job that would run for ever."""
        running = [node for node in cluster.nodes.values() if node.process.poll() is None]
        for node in running[:1]:
            node.process.send_signal(signal.SIGTERM)
        for node in cluster.nodes.values():
            node.wait()
