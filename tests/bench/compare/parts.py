"""The parts of a run. Each measures ours and the peers by turns and gives a session single samples; what they mean stands in figures.py."""
import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.dirname(HERE)
PEERS = os.path.join(BENCH, "peers")
sys.path.insert(1, BENCH)

import launch_bench  # noqa: E402

NOT_INSTALLED = "not installed"
LAUNCHERS = {"acc": "acc-launch", "cfloor": "floor (C)", "torchrun": "torchrun", "accelerate": "accelerate", "mpirun": "mpirun", "hydra": "hydra",
             "supervisord": "supervisord"}


# ---- starting, restarting, ending, idling, output ----
def launchers_bench(session):
    options = argparse.Namespace(acc_launch=session.program("acc-launch"), peers=",".join(LAUNCHERS), template=None, accelerate_src=None, lock=None)
    if session.python:
        os.environ["TORCH_PYTHON"] = session.python
    bench = launch_bench.Bench(options)
    for name in LAUNCHERS:
        if name not in bench.launchers:
            session.absent[LAUNCHERS[name]] = NOT_INSTALLED
    return bench


def take(session, results, part, key, figure, scale=1.0):
    """Numbers become samples; a launcher that has none but said why gets a note."""
    for name, found in results.d.get(part, {}).items():
        values = found.get(key, [])
        numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
        for value in numbers:
            session.add(figure, LAUNCHERS[name], value * scale)
        words = [value for value in values if isinstance(value, str)] + [value for value in found.get("failed", []) if value]
        if not numbers and words:
            session.note(figure, LAUNCHERS[name], words[0])


def start(session):
    bench, results = launchers_bench(session), launch_bench.Results()
    counts = (1, 8) if session.is_quick else (1, 8, 64, 256)
    try:
        for round_ in session.rounds(0.15, most=9):
            for n in counts if round_ < 3 or round_ % 2 == 0 else counts[:3]:
                launch_bench.start_round(bench, results, n, round_)
    finally:
        bench.close()
    take(session, results, "start_n1", "first_ms", "start_1")
    for n in counts[1:]:
        take(session, results, f"start_n{n}", "last_ms", f"start_{n}")
    take(session, results, "start_n8", "exit_ms", "run_8")


def restart(session):
    bench, results = launchers_bench(session), launch_bench.Results()
    try:
        for round_ in session.rounds(0.13, most=9):
            for kind in ("exit3", "sigkill"):
                launch_bench.restart_round(bench, results, kind, 1, 4, round_)
            launch_bench.restart_round(bench, results, "exit3", 0, 4, round_)
    finally:
        bench.close()
    take(session, results, "restart_exit3", "last_new_ms", "restart_exit")
    take(session, results, "restart_sigkill", "last_new_ms", "restart_kill")
    take(session, results, "teardown_exit3", "others_gone_ms", "teardown")


def orphans(session):
    bench, results = launchers_bench(session), launch_bench.Results()
    try:
        for round_ in session.rounds(0.10, most=5):
            for kind in ("sigterm", "sigkill"):
                launch_bench.shutdown_round(bench, results, kind, 8, round_)
    finally:
        bench.close()
    take(session, results, "shutdown_sigterm", "workers_gone_ms", "stop")
    for kind in ("sigterm", "sigkill"):
        for name, found in results.d.get("shutdown_" + kind, {}).items():
            for workers, kin in zip(found.get("workers_left", []), found.get("grandchildren_left", [])):
                session.add(f"left_{kind}", LAUNCHERS[name], workers + kin)


def idle(session):
    bench, results = launchers_bench(session), launch_bench.Results()
    try:
        launch_bench.part_idle(bench, results, 3 if session.is_quick else 10)
    finally:
        bench.close()
    for key, figure in (("rss_mib", "memory"), ("pss_mib", "memory_pss"), ("wakeups_per_s", "wakeups"), ("cpu_ms_per_10s", "idle_cpu")):
        take(session, results, "idle", key, figure)


def output(session):
    bench, results = launchers_bench(session), launch_bench.Results()
    try:
        for round_ in session.rounds(0.12, most=7):
            launch_bench.log_round(bench, results, 4, 10_000 if session.is_quick else 200_000, round_)
    finally:
        bench.close()
    for part, suffix in (("log", "pipe"), ("log_pty", "pty")):
        take(session, results, part, "lines_per_s", f"log_{suffix}", 1e-6)
        for name, found in results.d.get(part, {}).items():
            for torn, missing, whole in zip(found.get("lines_torn", []), found.get("lines_missing", []), found.get("lines_whole", [])):
                session.add(f"torn_{suffix}", LAUNCHERS[name], 100 * max(torn, missing) / max(1, whole + missing))
    take(session, results, "log", "launcher_peak_rss_mib", "log_memory")


# ---- figures of programs that print JSON ----
def json_lines(command, limit_s, **options):
    """[objects] that a command printed, and why it failed or "". Ended with its whole group after limit_s."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options)
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        out, _ = process.communicate()
        err = f"not within {limit_s} s"
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return rows, "" if process.returncode == 0 else err.strip()[-200:] or f"exit code {process.returncode}"


def rendezvous(session):
    ours, peer = session.program("acc-bench-rendezvous"), os.path.join(PEERS, "rendezvous.py")
    ways = {"acc-launch": ([ours], 2048), "acc-launch, TLS": ([ours, "--tls"], 512)}
    if session.python:
        ways["TCPStore"] = ([session.python, peer, "tcpstore"], 512)
        ways["elastic"] = ([session.python, peer, "elastic"], 32)
    else:
        session.absent.update({"TCPStore": NOT_INSTALLED, "elastic": NOT_INSTALLED})
    if shutil.which("etcd"):
        ways["etcd"] = ([sys.executable, peer, "etcd"], 512)
    else:
        session.absent["etcd"] = NOT_INSTALLED
    for round_ in session.rounds(0.13, most=9):
        for n in (8, 32) if session.is_quick else (8, 32, 512, 2048):
            for name, (command, most) in ways.items():
                if n > most or name == "elastic" and round_ > 2:
                    continue
                rows, why = json_lines([*command, str(n)], 40)
                if why or not rows:
                    session.note(f"meet_{n}", name, why or "printed nothing")
                    continue
                session.add(f"meet_{n}", name, rows[-1]["join_to_all_assigned_ms"])
                if n == 512:
                    session.add("meet_memory", name, rows[-1]["server_rss_kb"] / 1024)


# ---- collectives ----
SIZES = (8, 65536, 1 << 20, 16 << 20)


def points(ranks, is_quick):
    found = ["barrier"] + [f"allreduce:{size}" for size in SIZES]
    if ranks < 8:
        found += [f"{op}:{size}" for op in ("broadcast", "allgather", "gather") for size in (65536, 16 << 20)]
    return found[:3] if is_quick else found


def mpi_program(session, folder, compiler, name):
    """The benchmark built for an MPI library, None where its compiler is missing."""
    if not shutil.which(compiler):
        session.absent[name] = NOT_INSTALLED
        return None
    program = os.path.join(folder, "collectives_" + compiler.partition(".")[2])
    done = subprocess.run([compiler, "-O2", os.path.join(PEERS, "collectives_mpi.c"), "-o", program], capture_output=True, text=True)
    if done.returncode:
        session.absent[name] = "its compiler failed"
        return None
    return program


def collectives(session):
    with tempfile.TemporaryDirectory() as folder:
        ways = {"acc": lambda n, ms, names: [session.program("acc-bench-collectives"), "--ranks", str(n), "--budget-ms", ms, "--points", ",".join(names)]}
        if openmpi := mpi_program(session, folder, "mpicc.openmpi", "Open MPI"):
            ways["Open MPI"] = lambda n, ms, names: ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", str(n), openmpi, ms, *names]
        if mpich := mpi_program(session, folder, "mpicc.mpich", "MPICH"):
            ways["MPICH"] = lambda n, ms, names: ["mpiexec.hydra", "-np", str(n), mpich, ms, *names]
        if session.python:
            ways["gloo"] = lambda n, ms, names: [session.python, os.path.join(PEERS, "collectives_gloo.py"), str(n), ms, *names]
        else:
            session.absent["gloo"] = NOT_INSTALLED
        cores = len(os.sched_getaffinity(0))
        for round_ in session.rounds(0.22, most=9):
            for n in (2,) if session.is_quick else (2, 4, 8):
                for name, command in ways.items():
                    names = points(n, session.is_quick)
                    if name == "MPICH" and n > cores:  # it polls without yielding: a call takes slices of the scheduler, so a few points must do
                        if round_:
                            continue
                        names = names[:2] if n > 2 * cores else names[:3]
                    rows, why = json_lines(command(n, "15", names), 30)
                    for row in rows:
                        if row["op"] == "rss":
                            session.add(f"ranks{n}_memory", name, row["rss_over_buffers_kb_max"] / 1024)
                        elif row["wrong"]:
                            session.note(f"ranks{n}_{row['op']}_{row['bytes']}", name, f"{row['wrong']} wrong results")
                        else:
                            session.add(f"ranks{n}_{row['op']}_{row['bytes']}", name, row["lat_us_median"])
                    if why:
                        for point in names:
                            op, _, size = point.partition(":")
                            if name not in session.samples.get(f"ranks{n}_{op}_{size or 0}", {}):
                                session.note(f"ranks{n}_{op}_{size or 0}", name, why)
        for _ in session.rounds(0.03, most=5):
            rows, why = json_lines([session.program("acc-bench-overlap")], 30)  # exit code 1: the goal was missed, and the figure counts
            for row in rows:
                session.add("exposed", "acc", 100 * row["ratio"])
            if not rows:
                session.note("exposed", "acc", why)


PYTHON_BEATS = """
import sys, time
sys.path.insert(0, sys.argv[1])
from acc_heartbeat import heartbeat
begin, beats = time.perf_counter_ns(), 300_000
for step in range(beats): heartbeat(step)
print((time.perf_counter_ns() - begin) / beats)
"""


def heartbeat(session):
    """A worker's heartbeat from C++ and from Python, and the cheapest system call beside them."""
    def numbers(*program):
        done = subprocess.run([session.program("acc-launch"), "--num_processes", "1", "--num_machines", "1", "--no_python", *program],
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        found = [float(word) for word in done.stdout.split() if word.replace(".", "", 1).isdigit()]
        if done.returncode or not found:
            raise RuntimeError(done.stderr.strip()[-200:] or "printed nothing")
        return found

    for _ in session.rounds(0.02, most=5):
        beat, _, call = numbers(session.program("acc-bench-heartbeat"))
        session.add("heartbeat", "acc-launch", beat)
        session.add("heartbeat", "system call", call)
        session.add("heartbeat", "from Python", numbers(sys.executable, "-c", PYTHON_BEATS, os.path.join(BENCH, "../../runtime/python"))[0])


# ---- warm starts ----
def warm(session):
    if not session.python:
        session.absent["forkserver"] = "no Python with torch"
        raise RuntimeError("no Python with torch: warm starts are not measured")
    os.environ.update(ACC_BIN=session.bin, PYTHON_EXEC=session.python)
    import warm_bench
    warm_bench.ACC = session.program("acc-launch")
    names = {"acc-launch --preload torch": "acc-launch --preload", "forkserver with preload": "forkserver", "the forks alone": "forks alone",
             "python -c 'import torch'": "import alone"}
    figures = {"start, ms": "warm_start", "restart, ms": "warm_restart", "memory of idle workers and what is ready for the next ones (PSS), MiB": "warm_memory"}
    with tempfile.TemporaryDirectory() as folder:
        files = warm_bench.write_programs(folder)
        for round_ in session.rounds(0.14, least=2, most=7):
            parts = ("start", "restart", "memory") if round_ == 0 and not session.is_quick else ("start", "restart")
            warm_bench.measure_round(lambda figure, name, value: session.add(figures[figure], names.get(name, name), value), session.python,
                                     2 if session.is_quick else 4, files, parts,
                                     age=lambda launcher: warm_bench.RUNS if "--preload" in launcher.name else 0.5)  # only these get ready meanwhile


# ---- the service and several hosts ----
SERVICE = {"acc-ctl submit": ("submit", "acc-agent"), "systemd-run --wait": ("submit", "systemd"), "supervisorctl start": ("submit", "supervisord"),
           "HTTP to acc-agent": ("submit_protocol", "acc-agent"), "XML-RPC to supervisord": ("submit_protocol", "supervisord"),
           "acc-ctl ps": ("list_200", "acc-agent"), "systemctl list-units": ("list_200", "systemd")}
HOSTS = {"acc-launch --hosts": "acc-agent", "acc-launch --hosts --ssh": "acc-launch --ssh", "acc-launch on each, by hand": "started on each",
         "mpirun over ssh": "mpirun over ssh", "hydra over ssh": "hydra over ssh"}


def service_options(session, **more):
    import service_bench
    return service_bench, argparse.Namespace(bin=session.bin, reps=2 if session.is_quick else 12, lines=10_000 if session.is_quick else 200_000, **more)


def service(session):
    service_bench, options = service_options(session, parts="submit,idle" if session.is_quick else "submit,ps,idle")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        service_bench.compile_programs(folder)
        found = service_bench.under_systemd(options, folder)
    absent = {"systemd": "systemd", "supervisor": "supervisord"}
    session.absent.update({absent[name]: NOT_INSTALLED for name in found["absent"]})
    for name, values in found["samples"].items():
        group, _, who = name.partition(": ")
        if group.startswith("idle"):
            figure = "service_memory" if "MiB" in group else "service_wakeups"
        else:
            figure, who = SERVICE[who]
        for value in values:
            session.add(figure, who, value)
    if found["errors"]:
        raise RuntimeError("; ".join(found["errors"]))
    if not found["samples"]:
        raise RuntimeError("the service was not measured: a systemd of its own could not be started here (it needs root)")


def hosts(session):
    service_bench, options = service_options(session)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        service_bench.compile_programs(folder)
        network = service_bench.OnHosts(options, folder)
        try:
            network.start()
            network.output()
        finally:
            network.close()
    for missing, who in (("openssh-server", ("mpirun over ssh", "hydra over ssh", "acc-launch --ssh")), ("openmpi-bin", ("mpirun over ssh",)), ("mpich", ("hydra over ssh",))):
        if missing in network.absent:
            session.absent.update({name: f"{missing} is not installed" for name in who})
    for name, values in network.samples.items():
        group, _, who = name.partition(": ")
        for value in values:
            if group.startswith("8 hosts, ms to"):
                session.add("hosts_start", HOSTS[who], value)
            elif group.startswith("lines/s"):
                session.add("hosts_log", HOSTS[who], value / 1e6)
            elif group.startswith("lines of"):
                session.add("hosts_torn", HOSTS[who], value)


def hosts_collectives(session):
    """All-reduce between two hosts that are network namespaces."""
    import hosts_bench
    if hosts_bench.WHY_NOT:
        raise RuntimeError(hosts_bench.WHY_NOT)
    size = 1 << 20 if session.is_quick else 64 << 20
    options = argparse.Namespace(bin=session.bin, bytes=str(size), python=session.python)
    ways = {"acc": hosts_bench.ours, **({"gloo": hosts_bench.gloo} if session.python else {})}
    with tempfile.TemporaryDirectory() as folder, hosts_bench.Hosts(["a", "b"]) as network:
        if shutil.which("mpirun.openmpi") and (program := mpi_program(session, folder, "mpicc.openmpi", "Open MPI")):
            options.openmpi = program
            ways["Open MPI"] = hosts_bench.openmpi
        for round_ in session.rounds(0.04, most=5):
            for index, (name, way) in enumerate(ways.items()):
                try:
                    session.add("hosts_allreduce", name, way(network, "ab", 29600 + 20 * round_ + index, options)[size] / 1e3)
                except (KeyError, subprocess.SubprocessError) as error:
                    session.note("hosts_allreduce", name, f"no figure: {error}")


PARTS = {"start": start, "restart": restart, "orphans": orphans, "idle": idle, "output": output, "rendezvous": rendezvous, "collectives": collectives,
         "heartbeat": heartbeat, "warm": warm, "service": service, "hosts": hosts, "hosts_collectives": hosts_collectives}
