#!/usr/bin/env python3
"""Warm and cold starts of a PyTorch job, side by side in one run: acc-launch with --preload and without, torchrun, and the standard
library's forkserver with set_forkserver_preload. Medians of --repeats runs; ratios are what counts, as machines are noisy.

    python3 tests/bench/warm_bench.py [--workers 8] [--repeats 5] [--json FILE]
"""
import argparse, json, os, shutil, signal, statistics, subprocess, sys, tempfile, time

BIN = os.environ.get("ACC_BIN", os.path.join(os.path.dirname(__file__), "../../build/release/bin"))
ACC = os.path.join(BIN, "acc-launch")
# torchrun of torch 1.13 doesn't start under Python 3.11 by itself.
TORCHRUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration/torchrun.py")
RUNS = 4.0  # seconds that a job runs before it is looked at: those of the next round are forked meanwhile
WORKER = """
import os, sys, time
import torch
folder, mode = sys.argv[1:3]
attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
def mark(what):
    path = f"{folder}/{what}.{attempt}.{os.environ['RANK']}"
    with open(path + ".new", "w") as file:
        file.write(f"{time.clock_gettime_ns(time.CLOCK_MONOTONIC)} {os.getpid()}")
    os.rename(path + ".new", path)
mark("up")
if mode == "ddp":
    torch.distributed.init_process_group("gloo")
    torch.distributed.barrier()
    mark("group")
if mode == "start":
    sys.exit(0)
time.sleep(600 if attempt == "0" or mode == "idle" else 0)
"""
FORKSERVER = """
import multiprocessing, os, sys, time
def work(folder, rank):
    import torch
    with open(f"{folder}/up.0.{rank}", "w") as file:
        file.write(f"{time.clock_gettime_ns(time.CLOCK_MONOTONIC)} {os.getpid()}")
if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    workers = [context.Process(target=work, args=(sys.argv[1], rank)) for rank in range(int(sys.argv[2]))]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
"""
# Nothing but the forks: what a process with torch in it takes to make N workers that write a line each.
BARE = """
import os, sys, time
import torch
begin = time.monotonic()
pids = []
for rank in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        sys.stdout.write("."); sys.stdout.flush(); os._exit(0)
    pids.append(pid)
for pid in pids: os.waitpid(pid, 0)
sys.stderr.write(repr(time.monotonic() - begin))
"""


def until(condition, what, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"waited {seconds} s for {what}")
        time.sleep(0.001)


def marks(folder, what, attempt, workers):
    found = {}
    for rank in range(workers):
        try:
            with open(f"{folder}/{what}.{attempt}.{rank}") as file:
                found[rank] = [int(word) for word in file.read().split()]
        except OSError:
            return None
    return found


class Launcher:
    def __init__(self, name, command):
        self.name, self.command = name, command

    def start(self, mode, folder, script):
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen([*self.command, script, folder, mode], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def launchers(python, workers):
    ours = [ACC, "--num_processes", str(workers), "--max_restarts", "1", "--restart_delay", "0"]
    found = [Launcher("acc-launch --preload torch", [*ours, "--preload", "torch"]), Launcher("acc-launch", ours)]
    if subprocess.run([python, "-c", "import torch.distributed.run"], capture_output=True).returncode == 0:
        found.append(Launcher("torchrun", [python, TORCHRUN, "--nproc_per_node", str(workers), "--max_restarts", "1",
                                           "--monitor_interval", "0.1", "--master_port", "29871"]))
    return found


def measure_start(launcher, workers, script):
    with tempfile.TemporaryDirectory() as folder:
        begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        process = launcher.start("start", folder, script)
        process.wait(120)
        return (max(when for when, _ in marks(folder, "up", 0, workers).values()) - begin) / 1e6


def measure_restart(launcher, workers, script, mode, what, age=0.0):
    """SIGKILL of a rank until the new ranks have got there. `age`: seconds that the round has run by then."""
    with tempfile.TemporaryDirectory() as folder:
        process = launcher.start(mode, folder, script)
        try:
            until(lambda: marks(folder, what, 0, workers), f"the first round of {launcher.name}")
            time.sleep(age)
            victim = marks(folder, "up", 0, workers)[workers - 1][1]
            begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            os.kill(victim, signal.SIGKILL)
            until(lambda: marks(folder, what, 1, workers), f"the second round of {launcher.name}")
            return (max(when for when, _ in marks(folder, what, 1, workers).values()) - begin) / 1e6
        finally:
            process.terminate()
            process.wait(60)


def descendants(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as children:
            for child in map(int, children.read().split()):
                found += [child, *descendants(child)]
    return found


def measure_memory(launcher, workers, script, age):
    """PSS of all that the launcher has started, MiB: workers, and with --preload the preloader and those that wait for the next round."""
    with tempfile.TemporaryDirectory() as folder:
        process = launcher.start("idle", folder, script)
        try:
            until(lambda: marks(folder, "up", 0, workers), f"the workers of {launcher.name}")
            time.sleep(age)
            total = 0
            for pid in descendants(process.pid):
                with open(f"/proc/{pid}/comm") as comm, open(f"/proc/{pid}/smaps_rollup") as lines:
                    if comm.read().strip() != "acc-launch":
                        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
            return total / 1024
        finally:
            process.terminate()
            process.wait(60)


def python_with_torch():
    for python in (os.environ.get("PYTHON_EXEC"), shutil.which("python3"), "/usr/bin/python3"):
        if python and subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
            return python
    raise SystemExit("skipped: no Python here has torch")


def write_programs(folder):
    files = {}
    for name, text in (("worker", WORKER), ("forkserver", FORKSERVER), ("bare", BARE)):
        files[name] = os.path.join(folder, name + ".py")
        with open(files[name], "w") as file:
            file.write(text)
    return files


def measure_round(add, python, workers, files, parts=("start", "restart", "at once", "group", "memory"), age=lambda launcher: RUNS):
    """Each figure once, by turns; add(figure, launcher, value) takes them. age(launcher): seconds that a round runs before it is looked at."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    if "start" in parts:
        begin = time.monotonic()
        subprocess.run([python, "-c", "import torch"], env=env, check=True)
        add("start, ms", "python -c 'import torch'", (time.monotonic() - begin) * 1e3)
        with tempfile.TemporaryDirectory() as marked:
            begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            subprocess.run([python, files["forkserver"], marked, str(workers)], env=env, check=True)
            add("start, ms", "forkserver with preload", (max(w for w, _ in marks(marked, "up", 0, workers).values()) - begin) / 1e6)
    if "restart" in parts:
        bare = subprocess.run([python, files["bare"], str(workers)], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
        add("restart, ms", "the forks alone", float(bare.stderr) * 1e3)
    for launcher in launchers(python, workers):
        measures = {
            "start": ("start, ms", lambda: measure_start(launcher, workers, files["worker"])),
            "restart": ("restart, ms", lambda: measure_restart(launcher, workers, files["worker"], "restart", "up", age(launcher))),
            "at once": ("restart at once, ms", lambda: measure_restart(launcher, workers, files["worker"], "restart", "up")),
            "group": ("restart until the process group is formed, ms", lambda: measure_restart(launcher, workers, files["worker"], "ddp", "group", age(launcher))),
            "memory": ("memory of idle workers and what is ready for the next ones (PSS), MiB", lambda: measure_memory(launcher, workers, files["worker"], age(launcher))),
        }
        for part in parts:
            figure, measure = measures[part]
            add(figure, launcher.name, measure())


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--workers", type=int, default=8)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--json")
    given = options.parse_args()
    python, workers = python_with_torch(), given.workers
    os.environ["PYTHON_EXEC"] = python
    with tempfile.TemporaryDirectory() as folder:
        files, rows = write_programs(folder), {}

        def add(figure, name, value):
            rows.setdefault(figure, {}).setdefault(name, []).append(value)

        for _ in range(given.repeats):
            measure_round(add, python, workers, files)
        medians = {figure: {name: statistics.median(values) for name, values in names.items()} for figure, names in rows.items()}
        for figure, names in medians.items():
            ours = names["acc-launch --preload torch"]
            print(f"\n{figure} ({workers} workers, median of {given.repeats})")
            for name, value in names.items():
                print(f"  {name:32} {value:9.1f}   --preload is {ours / value:.2f} of it")
        if given.json:
            with open(given.json, "w") as file:
                json.dump(medians, file, indent=1)


if __name__ == "__main__":
    main()
