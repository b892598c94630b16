"""What can go wrong with one host of the service. Each has begin() and end(), and notes in the tasks' records what it did to them.

A daemon's death, its standstill and a full disk are nothing to a job that runs: they are noted only for tasks that were just being
submitted. A network fault is nothing to a job of one node.
"""
import contextlib, os, signal, time

import harness


class Trouble:
    is_of_network = False

    def __init__(self, course, host):
        self.course, self.host = course, host
        self.service, self.hosts, self.random = course.service, course.service.hosts, course.random

    def begin(self):
        pass

    def end(self):
        pass


class DaemonKilled(Trouble):
    name = "daemon killed"
    signo = signal.SIGKILL

    def begin(self):
        self.course.disturb_starting(self.host, self.name)
        daemon = self.service.daemons[self.host]
        daemon.process.send_signal(self.signo)
        daemon.process.wait(20 * harness.SLACK)

    def end(self):
        self.course.revive(self.host)


class DaemonStopped(DaemonKilled):
    name = "daemon stopped"
    signo = signal.SIGTERM


class DaemonKilledThrice(DaemonKilled):
    """While it finds its jobs again."""
    name = "daemon killed thrice"

    def begin(self):
        super().begin()
        for _ in range(2):
            self.service.start(self.host)
            time.sleep(self.random.uniform(0.01, 0.15))
            super().begin()


class DaemonFrozen(Trouble):
    name = "daemon frozen"

    def begin(self):
        self.course.disturb_starting(self.host, self.name)
        self.service.daemons[self.host].process.send_signal(signal.SIGSTOP)

    def end(self):
        self.service.daemons[self.host].process.send_signal(signal.SIGCONT)


class ProcessKilled(Trouble):
    """Any process of any job here: guardian, agent, worker, bridge or the command itself."""
    name = "process of a job killed"

    def begin(self):
        tasks = [task for task in self.course.tasks if self.host in task.places]
        self.random.shuffle(tasks)
        for task in tasks:
            pids = self.service.with_token(self.host, task.token)
            if not pids:
                continue
            pid = self.random.choice(sorted(pids))
            task.trouble.append(self.name)
            self.course.note(f"  {task.name()}: {pid} {pids[pid].replace(harness.PROGRAMS.name, '')[:60]}")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return


class AllOfAJobKilled(Trouble):
    """At once: guardian, agent and workers, as by the kernel's memory killer."""
    name = "all processes of a job killed"

    def begin(self):
        tasks = [task for task in self.course.tasks if self.host in task.places]
        self.random.shuffle(tasks)
        for task in tasks:
            if pids := self.service.with_token(self.host, task.token):
                task.trouble.append(self.name)
                self.course.note(f"  {task.name()}")
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                return


class PowerOff(Trouble):
    name = "power off"
    is_of_network = True

    def begin(self):
        for task in self.course.tasks:
            if self.host in task.places:
                task.trouble.append(self.name)
        self.hosts.power_off(self.host)
        self.service.daemons[self.host].process.wait(20 * harness.SLACK)

    def end(self):
        self.hosts.heal(self.host)
        self.course.revive(self.host)


class Partition(Trouble):
    name = "partition"
    is_of_network = True

    def begin(self):
        self.course.disturb_network(self.host, self.name)
        self.hosts.partition(self.host, self.random.choice(("both", "in", "out")))

    def end(self):
        self.hosts.heal(self.host)


class HalfOpen(Partition):
    name = "living connections silent"

    def begin(self):
        self.course.disturb_network(self.host, self.name)
        self.hosts.drop_established(self.host)


class Reset(Trouble):
    name = "connections reset"
    is_of_network = True

    def begin(self):
        self.course.disturb_network(self.host, self.name)
        self.hosts.reset_connections(self.host)


class LinkDown(Trouble):
    name = "link down"
    is_of_network = True

    def begin(self):
        self.course.disturb_network(self.host, self.name)
        self.hosts.link(self.host, False)

    def end(self):
        self.hosts.link(self.host, True)


class DiskFull(Trouble):
    name = "disk full"

    def begin(self):
        self.course.disturb_starting(self.host, self.name)
        self.course.disk_is_full(self.host)
        self.course.note(f"  {self.service.fill(self.host)} blocks left")

    def end(self):
        self.service.empty(self.host)


class DaemonKilledOnFullDisk(DiskFull):
    """It must find its jobs again all the same: they can be stopped, and removed, which is what makes room."""
    name = "daemon killed on a full disk"

    def begin(self):
        super().begin()
        daemon = self.service.daemons[self.host]
        daemon.process.kill()
        daemon.process.wait(20 * harness.SLACK)
        self.course.revive(self.host)


ALL = (DaemonKilled, DaemonKilled, DaemonKilled, DaemonStopped, DaemonKilledThrice, DaemonFrozen, ProcessKilled, ProcessKilled, ProcessKilled, AllOfAJobKilled,
       PowerOff, Partition, Partition, HalfOpen, Reset, LinkDown, DiskFull, DiskFull, DaemonKilledOnFullDisk)
