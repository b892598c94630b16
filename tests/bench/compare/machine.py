"""What was measured on, and with what: the machine, its load, the versions of the programs."""
import contextlib
import os
import platform
import re
import resource
import shutil
import subprocess
import time

TICKS = os.sysconf("SC_CLK_TCK")


def read(path):
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""


def facts():
    names = set(re.findall(r"^model name\s*:\s*(.+)$", read("/proc/cpuinfo"), re.M))
    memory = re.search(r"MemTotal:\s*(\d+)", read("/proc/meminfo"))
    system = re.search(r'^PRETTY_NAME="?([^"\n]+)', read("/etc/os-release"), re.M)
    return {"cpu": ", ".join(sorted(names)) or platform.machine(), "cores": len(os.sched_getaffinity(0)), "architecture": platform.machine(),
            "memory_gib": round(int(memory[1]) / 2**20, 1) if memory else None, "kernel": platform.release(), "system": system[1] if system else "unknown",
            "is_virtual": " hypervisor" in read("/proc/cpuinfo")}


def first_line(*command, pattern=r"\d+(?:\.\d+)+\S*"):
    """The version in what a program says of itself, None without the program."""
    if not shutil.which(command[0]):
        return None
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
        found = re.search(pattern, done.stdout + done.stderr)
        return found[0].rstrip(",)") if found else None
    return None


def python_version_of(python, module):
    return first_line(python, "-c", f"import {module}; print({module}.__version__)") if python else None


def versions(python):
    sbin = os.environ["PATH"] + ":/usr/sbin:/sbin"
    return {"Python": first_line(python, "--version") if python else None, "torch": python_version_of(python, "torch"),
            "accelerate": python_version_of(python, "accelerate"), "Open MPI": first_line("mpirun.openmpi", "--version"),
            "MPICH": first_line("mpiexec.hydra", "--version"), "supervisord": first_line("supervisord", "--version"),
            "etcd": first_line("etcd", "--version"), "systemd": first_line("systemctl", "--version", pattern=r"\d+"),
            "OpenSSH": first_line(shutil.which("sshd", path=sbin) or "sshd", "-V", pattern=r"OpenSSH_[\w.]+"), "C compiler": first_line("cc", "--version")}


def processor_s():
    """(busy, stolen) seconds of all processors since boot; waiting for a disk is idle."""
    words = [int(word) for word in read("/proc/stat").split("\n", 1)[0].split()[1:]]
    return (sum(words[:3]) + sum(words[5:7])) / TICKS, words[7] / TICKS


def own_s():
    """Processor seconds of this process and of all its children that have ended."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


class Load:
    """How many cores other processes kept busy over a span that began with this object."""

    def __init__(self):
        self.since, self.busy, self.own = time.monotonic(), processor_s(), own_s()

    def others(self):
        # Orphans of what was measured were adopted by this process: their time counts once they are reaped.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        seconds = max(time.monotonic() - self.since, 0.01)
        busy, stolen = processor_s()
        return {"others_cores": round(max(0.0, busy - self.busy[0] - (own_s() - self.own)) / seconds, 3),
                "stolen_cores": round(max(0.0, stolen - self.busy[1]) / seconds, 3)}


def before(seconds=2.0):
    """The machine before anything is measured."""
    load = Load()
    time.sleep(seconds)
    return {"load_average": [float(word) for word in read("/proc/loadavg").split()[:3]], **load.others()}
