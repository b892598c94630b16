"""The driver of tests/chaos/run: keeps one job of five hosts in trouble, and judges it."""
import os, random, shutil, signal, subprocess, sys, time

import faults
import history
from cluster import PYTHON_WORKER, Cluster
from harness import SLACK

HOSTS = "a b c d e"
SLOTS = {"a": 1, "b": 2, "c": 1, "d": 2, "e": 1}
MIN = 3
TIMES = "--dead_after 500ms --lease 1s --join_timeout 60s --last_call 500ms --grace 1s --restart_delay 0"
MODULES = "ctypes,fcntl,json,random,re,socket,threading"
RECOVERY = 20.0 * SLACK  # seconds within which the job must run again once enough nodes are well


class Violation(Exception):
    pass


class Chaos:
    def __init__(self, seed, seconds, keep, preload=False):
        self.seed, self.seconds, self.keep, self.preload = seed, seconds, keep, preload
        self.random = random.Random(seed)
        warm = f" --preload {MODULES}" if preload else ""
        self.cluster = Cluster(f"{HOSTS} x", nnodes=f"{MIN}:5", flags=f"--max_restarts 1000000 --rdzv_id chaos{warm}", times=TIMES, words="linger=0s ckpt=30ms")
        self.faults = faults.ALL + (faults.WARM if preload else ())
        self.members = HOSTS.split()
        self.clocks = faults.Clocks(self.cluster, ("b", "d"))
        self.pauses = faults.Pauses(self.cluster, ("a", "e"))
        self.paused = {}  # pid: nanoseconds; workers that were on a machine that was paused with its clocks
        self.events = []  # (nanoseconds, text)
        self.excused = set()  # hosts whose launcher was killed by us
        self.lives_again = 0
        self.archive = {}

    # ---- telling ----
    def note(self, text):
        at = time.monotonic_ns()
        self.events.append((at, text))
        print(f"{(at - self.begun) / 1e9:8.2f} s  {text}", flush=True)

    # ---- the job ----
    def program(self):
        return {"program": [PYTHON_WORKER]} if self.preload else {}

    def launch(self, host):
        old = self.cluster.nodes.get(host)
        if old:
            self.archive[f"{host}.{len(self.archive)}"] = old.stderr
        self.excused.discard(host)
        self.cluster.start(host, f"--nproc_per_node {SLOTS[host]}", env={**self.clocks.environment(host), **self.pauses.environment(host)}, **self.program())

    def ended(self):
        return [host for host in self.members if host in self.cluster.nodes and self.cluster.nodes[host].process.poll() is not None]

    def bring_back(self):
        """Starts what was killed again. What ended by itself had no reason to."""
        for host in self.ended():
            if host not in self.excused:
                raise Violation(f"the launcher on {host} ended by itself with {self.cluster.nodes[host].process.returncode}")
            self.launch(host)

    def current(self):
        """The workers of the newest round if all of them live, else nothing."""
        lives = self.cluster.living()
        if not lives:
            return []
        newest = max(life.round for life in lives)
        members = [life for life in lives if life.round == newest]
        return members if len(members) == members[0].world else []

    def wait_running(self, least=MIN, deadline=RECOVERY, after=-1):
        """Until a round newer than `after` runs on at least so many nodes."""
        end = time.monotonic() + deadline
        while True:
            members = self.current()
            if members and members[0].nodes >= least and members[0].round > after:
                return members
            for host in self.ended():
                if host not in self.excused:
                    raise Violation(f"the launcher on {host} ended by itself with {self.cluster.nodes[host].process.returncode}")
            if time.monotonic() > end:
                raise Violation(f"the job does not run: {deadline:g} s after the last change there is no round of at least {least} nodes")
            time.sleep(0.02)

    def pass_time(self, seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))

    # ---- the course ----
    def one_fault(self):
        nodes = sorted({life.node for life in self.wait_running()})
        # So many may fail that a majority of the round is left, and the minimum.
        may_fail = min((len(nodes) - 1) // 2, len(self.members) - MIN)
        if may_fail < 1:
            self.refill(len(nodes))
            return
        count = 2 if may_fail >= 2 and self.random.random() < 0.3 else 1
        chosen = []
        for host in self.random.sample(nodes, count):
            fault = self.random.choice(self.faults)(self, host)
            self.note(f"{fault.name} on {host}")
            fault.begin()
            chosen.append(fault)
        self.pass_time(self.random.uniform(0.1, 3.0))
        for fault in chosen:
            fault.end()
            self.note(f"{fault.name} on {fault.host} is over")
        self.bring_back()
        self.wait_running()

    def refill(self, had):
        """A crash of a worker makes a new round, in which all that came back have their place."""
        self.bring_back()
        members = self.wait_running()
        self.cluster.hosts.heal()
        self.pass_time(1.5)  # for those that must find the job again; the wait below is what judges
        victim = self.random.choice(self.current() or members)
        self.note(f"worker crash: {victim.name()}")
        try:
            os.kill(victim.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.wait_running(least=min(had + 1, len(self.members)), after=victim.round)

    def wait_for_all(self, when):
        """Some may have come after the last call of the round: refilled, it has a place for each."""
        members = self.wait_running()
        for _ in range(3):
            if members[0].nodes == len(self.members):
                return
            self.refill(members[0].nodes)
            members = self.wait_running()
        if members[0].nodes != len(self.members):
            raise Violation(f"only {members[0].nodes} of {len(self.members)} nodes are in the job at {when}")

    def finish(self):
        """At the end all come back, and a signal to one ends all."""
        self.cluster.hosts.heal()
        self.clocks.set_all(0)
        self.bring_back()
        self.wait_for_all("the end")
        asked = self.random.choice(self.members)
        self.note(f"SIGTERM to the launcher on {asked}: the end")
        self.cluster.nodes[asked].process.send_signal(signal.SIGTERM)
        for host in self.members:
            try:
                code = self.cluster.nodes[host].process.wait(15 * SLACK)
            except subprocess.TimeoutExpired:
                raise Violation(f"the launcher on {host} does not end") from None
            if code != 143:
                raise Violation(f"the launcher on {host} ended with {code}, not 143")
        end = time.monotonic() + 2 * SLACK
        while left := {host: self.cluster.hosts.processes(host) for host in self.members if self.cluster.hosts.processes(host)}:
            if time.monotonic() > end:
                raise Violation(f"left behind: {left}")
            time.sleep(0.02)

    def judge(self):
        lives = history.load(self.cluster.diaries)
        found = history.violations(lives, paused=self.paused)
        if found:
            raise Violation("\n".join(found))
        rounds = history.by_round(lives)
        count = sum(" is over" in text for _, text in self.events)
        writes = sum(len(life.writes) for life in lives)
        print(f"no violation: seed {self.seed}, {count} faults, {len(rounds)} rounds, {len(lives)} workers, {writes} checkpoints, {len(self.paused)} workers paused, no two rounds overlapped, ranks were bijections, "
              "the job ran again after each fault and ended when told", flush=True)

    def run(self):
        self.begun = time.monotonic_ns()
        end = time.monotonic() + self.seconds
        try:
            for host in self.members:
                self.launch(host)
            self.wait_for_all("the start")
            while time.monotonic() < end:
                self.one_fault()
            self.finish()
            self.judge()
            return 0
        except Violation as violation:
            self.tell(violation)
            self.keep = True
            return 1
        finally:
            self.close()

    def tell(self, violation):
        lives = history.load(self.cluster.diaries)
        print(history.story(lives, self.events))
        for name, text in {**self.archive, **{host: node.stderr for host, node in self.cluster.nodes.items()}}.items():
            print(f"--- {name} said:\n{text[-6000:]}")
        also = history.violations(lives, paused=self.paused)
        print("\n".join(f"VIOLATION: {text}" for text in dict.fromkeys([str(violation), *also])))
        print(f"again: tests/chaos/run --seed {self.seed} --seconds {self.seconds:g}{' --preload' if self.preload else ''}", flush=True)

    def close(self):
        if self.keep:
            folder = f"/tmp/acc-chaos-{self.seed}-{os.getpid()}"
            shutil.copytree(self.cluster.diaries, folder)
            for name, text in {**self.archive, **{host: node.stderr for host, node in self.cluster.nodes.items()}}.items():
                with open(os.path.join(folder, f"said.{name}"), "w") as f:
                    f.write(text)
            print(f"kept: {folder}; tests/chaos/history.py {folder} shows it", file=sys.stderr)
        self.cluster.close()
