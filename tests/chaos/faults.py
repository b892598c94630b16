"""What can go wrong with one host of the chaos job. The numbers are rows of the fault matrix in the requirements.

Each fault has begin() and end(); whoever kills a launcher says so (`excused`), as it will be started again.
"""
import os, signal, subprocess, sys, time

import harness
from cluster import PAUSED_CLOCK, PORT, WALL_CLOCK


class Clocks:
    """19: wall clocks of some hosts that can be set."""

    def __init__(self, cluster, hosts):
        self.files = {host: os.path.join(cluster.folder, f"clock.{host}") for host in hosts}
        self.set_all(0)

    def environment(self, host):
        return {**harness.preloading(WALL_CLOCK), "WALL_CLOCK_FILE": self.files[host]} if host in self.files else {}

    def set_all(self, seconds):
        for path in self.files.values():
            with open(path, "w") as f:
                f.write(str(seconds))


LEASE = 1.0  # seconds, as in chaos.TIMES


class Pauses:
    """Hosts whose clocks can stand still."""

    def __init__(self, cluster, hosts):
        self.files = {host: os.path.join(cluster.folder, f"paused.{host}") for host in hosts}
        self.behind = {host: [0, 0] for host in hosts}

    def environment(self, host):
        return {**harness.preloading(PAUSED_CLOCK), "PAUSED_CLOCK_FILE": self.files[host]} if host in self.files else {}

    def stand_still(self, host, nanoseconds, wall):
        behind = self.behind[host]
        behind[0] += nanoseconds
        behind[1] += nanoseconds if wall else 0
        with open(self.files[host] + ".new", "w") as f:
            f.write(f"{behind[0]} {behind[1]}")
        os.replace(self.files[host] + ".new", self.files[host])

    def set_right(self, host):
        """As after a suspension: all clocks of the host go forward to the real time."""
        self.behind[host] = [0, 0]
        self.stand_still(host, 0, False)


class Fault:
    def __init__(self, chaos, host):
        self.chaos, self.host = chaos, host
        self.cluster, self.hosts, self.random = chaos.cluster, chaos.cluster.hosts, chaos.random

    def begin(self):
        pass

    def end(self):
        pass


class FrozenAgent(Fault):
    """14, 28: its guardian kills the workers when the lease is over; thawed, it holds a stale round."""
    name = "agent frozen"

    def begin(self):
        self.agent = self.cluster.nodes[self.host].agent
        if self.agent:
            os.kill(self.agent, signal.SIGSTOP)

    def end(self):
        if self.agent and harness.state_of(self.agent) == "T":
            os.kill(self.agent, signal.SIGCONT)


class FrozenMachine(Fault):
    """Guardian, agent and workers stand still together: the kernel must have killed the workers before they wake up."""
    name = "machine frozen"

    def begin(self):
        self.pids = self.hosts.processes(self.host)
        for pid in self.pids:
            self.send(pid, signal.SIGSTOP)

    def end(self):
        self.random.shuffle(self.pids)  # some wake up before their guardian
        for pid in self.pids:
            self.send(pid, signal.SIGCONT)

    @staticmethod
    def send(pid, signo):
        try:
            os.kill(pid, signo)
        except ProcessLookupError:
            pass


class PausedMachine(Fault):
    """A virtual machine is paused, and its clocks stand still with it, sometimes the wall clock, too. Its workers may run for a moment
    when it goes on; no checkpoint of theirs may become valid. Only on hosts with the preloaded library that moves the clocks."""
    name = "machine paused, clocks standing still"

    def begin(self):
        self.begun = time.monotonic_ns()
        # Nothing reaches a machine that is paused. The network first and the workers last: the moment in which a pause is not noticed is
        # the one in which an answer is on its way.
        self.hosts.partition(self.host)
        self.lives = {life.pid for life in self.cluster.living(self.host)}
        self.pids = sorted(self.hosts.processes(self.host), key=lambda pid: pid in self.lives)
        for pid in self.pids:
            FrozenMachine.send(pid, signal.SIGSTOP)
        for pid in self.lives:
            self.chaos.paused.setdefault(pid, self.begun)
        harness.until(lambda: all(harness.state_of(pid) in (None, "T", "Z", "X") for pid in self.pids), "a machine that stands still", 10)
        self.stopped = time.monotonic_ns()  # its clocks stand at this moment, or would go backwards: no machine's do

    def end(self):
        stood = time.monotonic_ns() - self.stopped
        self.chaos.pauses.stand_still(self.host, stood, wall=self.random.random() < 0.5)
        self.hosts.heal(self.host)
        self.random.shuffle(self.pids)
        for pid in self.pids:
            FrozenMachine.send(pid, signal.SIGCONT)
        # A starting worker reads the kernel's clock by a system call, which no preloaded library moves: to it each later lease would be
        # over. So the clocks are set right when the workers that were paused are gone, or live on rightly: the lease outlasted the pause.
        end = time.monotonic() + 2 * LEASE * harness.SLACK
        while time.monotonic() < end and any(harness.state_of(pid) not in (None, "Z", "X") for pid in self.lives):
            time.sleep(0.01)
        self.chaos.pauses.set_right(self.host)


def frozen(chaos, host):
    """Whole machines stand still: with the kernel's help against it, or without any."""
    return (PausedMachine if host in chaos.pauses.files else FrozenMachine)(chaos, host)


class PowerOff(Fault):
    """15: everything dies at once and no reset goes out."""
    name = "power off"

    def begin(self):
        self.chaos.excused.add(self.host)
        self.hosts.power_off(self.host)

    def end(self):
        self.hosts.heal(self.host)


class Killed(Fault):
    """15: all processes are killed; the peers get resets."""
    name = "all processes killed"

    def begin(self):
        self.chaos.excused.add(self.host)
        self.hosts.end_processes(self.host)


class AgentKilled(Fault):
    """13: workers die with their agent; the guardian ends."""
    name = "agent killed"

    def begin(self):
        self.chaos.excused.add(self.host)
        agent = self.cluster.nodes[self.host].agent
        os.kill(agent or self.cluster.nodes[self.host].pid, signal.SIGKILL)

    def end(self):
        self.cluster.nodes[self.host].process.wait(10)


class LinkDown(Fault):
    """15: the cable."""
    name = "link down"

    def begin(self):
        self.hosts.link(self.host, False)

    def end(self):
        self.hosts.link(self.host, True)


class Partition(Fault):
    """16"""
    name = "partition"

    def begin(self):
        self.way = self.random.choice(("both", "in", "out"))
        self.chaos.note(f"  {self.way}")
        self.hosts.partition(self.host, self.way)

    def end(self):
        self.hosts.heal(self.host)


class PairCut(Fault):
    """16: two hosts that don't reach each other while all others do."""
    name = "cut from one other"

    def begin(self):
        other = self.random.choice([name for name in self.chaos.members if name != self.host])
        self.chaos.note(f"  {other}")
        self.hosts.partition_between(self.host, other)

    def end(self):
        self.hosts.heal(self.host)


class HalfOpen(Fault):
    """17"""
    name = "living connections silent"

    def begin(self):
        self.hosts.drop_established(self.host)

    def end(self):
        self.hosts.heal(self.host)


class Reset(Fault):
    name = "connections reset"

    def begin(self):
        self.hosts.reset_connections(self.host)


class SlowLine(Fault):
    """18: a beat is 100 ms here and a lease a second, so the line is fast in proportion."""
    name = "slow and lossy line"

    def begin(self):
        self.hosts.slow(self.host, 40, jitter_ms=5, loss=5, mbit=5)

    def end(self):
        self.hosts.fast(self.host)


class ClockJump(Fault):
    """19"""
    name = "clocks jump by an hour"

    def begin(self):
        self.chaos.clocks.set_all(self.random.choice((-3600, 3600)))


class WorkerCrash(Fault):
    name = "worker killed"

    def begin(self):
        lives = self.cluster.living(self.host)
        if lives:
            os.kill(self.random.choice(lives).pid, signal.SIGKILL)


class Userdefined(Fault):
    """30: a signal that ends nothing, for all ranks on all nodes."""
    name = "SIGUSR2 to the launcher"

    def begin(self):
        self.cluster.nodes[self.host].process.send_signal(signal.SIGUSR2)


class Stranger(Fault):
    """23, 26, 28: a launcher on host x that must not get in."""
    name = "a stranger on x, against the coordinator"

    def begin(self):
        other = os.path.join(self.cluster.folder, "other-secret")
        if not os.path.exists(other):
            subprocess.run([harness.ACC, "--make_secret", other], check=True, capture_output=True)
        more, self.code = self.random.choice(((f"--node_name {self.host}", 77), (f"--secret_file {other}", 77), ("--nnodes 7", 77), ("--rdzv_id stale", 77)))
        self.chaos.note(f"  {more}")
        self.stranger = self.cluster.start("x", f"--rdzv_conf is_host=false {more}", **self.chaos.program())

    def end(self):
        # The coordinator may be in trouble just now; then the stranger waits, as all would.
        self.cluster.nodes.pop("x", None)  # there may be two strangers
        try:
            code = self.stranger.process.wait(3)
        except subprocess.TimeoutExpired:
            code = None
        said = self.stranger.stderr
        self.stranger.close()
        workers = [life for life in self.cluster.living() if life.node == "x"]
        if workers or code not in (None, self.code):
            from chaos import Violation
            raise Violation(f"the stranger ended with {code} and has {len(workers)} workers:\n{said}")


NOISE = """
import os, random, socket, sys, time
end, many = time.monotonic() + 2, []
while time.monotonic() < end:
    try:
        c = socket.create_connection((sys.argv[1], int(sys.argv[2])), 0.5)
        c.sendall(random.choice([b"GET / HTTP/1.0\\r\\n\\r\\n", os.urandom(500), b"\\x16", b"\\xff" * 9000, b""]))
        many = (many + [c])[-200:]
    except OSError: pass
    time.sleep(0.005)
"""


class Noise(Fault):
    """24, 25: bytes that mean nothing, and clients that say nothing, at the port of this host."""
    name = "noise at the control port"

    def begin(self):
        self.noise = self.hosts.run("x", [sys.executable, "-c", NOISE, self.hosts.address(self.host), str(PORT)], stderr=subprocess.DEVNULL)

    def end(self):
        self.noise.kill()
        self.noise.wait()


ALL = (FrozenAgent, frozen, frozen, PowerOff, Killed, AgentKilled, LinkDown, Partition, Partition, PairCut, HalfOpen, Reset, SlowLine, ClockJump,
       WorkerCrash, Userdefined, Stranger, Noise)


def preloader_of(cluster, host):
    """Of the agent's children the one that is no worker: its command line is a worker's, but it keeps no diary. None while there is none."""
    agent = cluster.nodes[host].agent
    lives = {life.pid for life in cluster.living(host)}
    return next((pid for pid in harness.children_of(agent or 0) if pid not in lives), None)


class PreloaderKilled(Fault):
    """Running workers stay; another preloader is started, and after the third the job goes on cold."""
    name = "preloader killed"

    def begin(self):
        pid = preloader_of(self.cluster, self.host)
        if pid:
            FrozenMachine.send(pid, signal.SIGKILL)


class PreloaderStopped(Fault):
    """A round that asks it for workers starts cold after a time-out."""
    name = "preloader stopped"

    def begin(self):
        self.pid = preloader_of(self.cluster, self.host)
        if self.pid:
            FrozenMachine.send(self.pid, signal.SIGSTOP)

    def end(self):
        if self.pid and harness.state_of(self.pid) == "T":
            FrozenMachine.send(self.pid, signal.SIGCONT)


class WaitingKilled(Fault):
    """One of those that were forked ahead of their round."""
    name = "a waiting worker killed"

    def begin(self):
        waiting = [pid for maker in harness.children_of(preloader_of(self.cluster, self.host) or 0) for pid in harness.children_of(maker)]
        if waiting:
            FrozenMachine.send(self.random.choice(waiting), signal.SIGKILL)


WARM = (PreloaderKilled, PreloaderStopped, WaitingKilled)
