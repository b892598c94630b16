#!/usr/bin/env python3
"""acc-agent beside systemd, supervisord and the MPI launchers, in one run; medians and ratios.

    service_bench.py [--bin build/release/bin] [--parts submit,ps,idle,hosts,output] [--reps 20] [--json FILE]

Parts: submit   command -> first instruction of the job's program: acc-ctl submit, systemd-run --wait, supervisorctl start; and by the
                servers' own protocols: HTTP to acc-agent, XML-RPC to supervisord
       ps       acc-ctl ps with 200 jobs known, systemctl list-units with 200 units of systemd-run loaded
       idle     resident memory and wake-ups a second, with one sleeping job
       hosts    command -> last worker's first instruction on 8 hosts (network namespaces): acc-launch --hosts over the daemons, mpirun and
                mpiexec.hydra over ssh; without the service: acc-launch on each host, all let go at once; and the rendezvous
                alone (acc-bench-rendezvous --tls 8)
       output   4 workers x 200,000 lines on another host through both daemons to a pipe: lines a second, with start and end; mpirun's

submit, ps and idle run under a systemd of their own (tests/integration/systemd/with_systemd.sh). What is not installed is left out
and said: Debian has it as systemd, supervisor, openmpi-bin, mpich, openssh-server. Needs root.
"""
import argparse, contextlib, json, os, re, shutil, signal, socket, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
STAMP_C = r"""
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char** argv) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  char line[64];
  int n = snprintf(line, sizeof line, "%lld\n", t.tv_sec * 1000000000LL + t.tv_nsec);
  int fd = open(argv[1], O_WRONLY | O_APPEND | O_CREAT, 0666);
  return argc < 2 || write(fd, line, n) != n;
}
"""
LINES_C = r"""
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  const char* rank = getenv("RANK") ? getenv("RANK") : getenv("OMPI_COMM_WORLD_RANK");
  for (long i = 0; i < atol(argv[argc - 1]); ++i) printf("w%s %08ld step loss=0.123456 lr=1.0e-04\n", rank, i);
  return 0;
}
"""
SUPERVISOR = """[supervisord]
nodaemon=true
logfile=/dev/null
logfile_maxbytes=0
pidfile={folder}/supervisord.pid
[unix_http_server]
file={folder}/supervisor.sock
[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix://{folder}/supervisor.sock
[program:stamp]
command={stamp} {stamps}
autostart=false
autorestart=false
startsecs=0
[program:sleeper]
command=sleep 100000
"""


def log(*words):
    print(*words, file=sys.stderr, flush=True)


def wait(condition, what, seconds=30):
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise SystemExit(f"waited {seconds} s for {what}")
        time.sleep(0.0005)
    return value


def stamps(path, count):
    """Nanoseconds of the last of so many first instructions."""
    def found():
        with contextlib.suppress(OSError), open(path) as file:
            lines = file.read().split("\n")[:-1]
            return max(map(int, lines)) if len(lines) >= count else None
    return wait(found, f"{count} first instructions")


class Timed:
    """Commands measured by turns; each is a function that starts, and returns what to call when its stamp was seen."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "stamps")
        self.took = {}

    def measure(self, name, count, begin):
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path)
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        end = begin()
        last = stamps(self.path, count)
        end()
        self.took.setdefault(name, []).append((last - before) / 1e6)


def command(*words, codes=(0,), **options):
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **options)

    def end():
        if process.wait(60) not in codes:
            raise SystemExit(f"{' '.join(words)}: exit code {process.returncode}")
    return end


def http(path, method, target, body):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        line.sendall(f"{method} {target} HTTP/1.1\r\nHost: acc\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        answer = b""
        while more := line.recv(65536):
            answer += more
    return answer.decode()


def usage(pid):
    switches = rss = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status") as file:
            switches += int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", file.read(), re.M)[1])
    with open(f"/proc/{pid}/status") as file:
        rss = int(re.search(r"^VmRSS:\s*(\d+)", file.read(), re.M)[1]) / 1024
    return rss, switches


# ---- under systemd ----
class Inside:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.stamp = os.path.join(folder, "stamp")
        self.timed = Timed("/run")
        self.samples, self.absent = {}, []
        self.socket = "/run/acc-bench/agent.sock"
        subprocess.run(["systemctl", "start", "dbus"], check=True)  # systemd-run --wait needs it
        self.agent = subprocess.Popen([f"{folder}/acc-agent", "--state-dir", "/run/acc-bench", "--slots", "300"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.environ["ACC_AGENT_SOCKET"] = self.socket
        wait(lambda: os.path.exists(self.socket), "acc-agent")
        self.supervisor = None
        if shutil.which("supervisord"):
            with open("/run/supervisor.conf", "w") as file:
                file.write(SUPERVISOR.format(folder="/run", stamp=self.stamp, stamps=self.timed.path))
            self.supervisor = subprocess.Popen(["supervisord", "-c", "/run/supervisor.conf"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait(lambda: os.path.exists("/run/supervisor.sock"), "supervisord")
            time.sleep(2)
        else:
            self.absent.append("supervisor")

    def words(self, *program):
        return ["--cpu", "--num_cpu_threads_per_process", "1", "--num_processes", "1", "--no_python", *program]

    def ended(self):
        wait(lambda: '"running"' not in (text := http(self.socket, "GET", "/v1/jobs", "")) and '"waiting"' not in text, "the end of the jobs")

    def submit(self):
        path = self.timed.path

        def by_http():
            body = json.dumps({"name": "t", "working_directory": "/", "words": self.words(self.stamp, path)})
            answer = http(self.socket, "POST", "/v1/jobs", body)
            assert " 201 " in answer.split("\r\n")[0], answer
            return self.ended

        def stamp_ended(server):
            wait(lambda: server.supervisor.getProcessInfo("stamp")["statename"] == "EXITED", "the end of supervisord's program")

        def by_supervisorctl():
            # 7: it ended before supervisord looked whether it runs. Its stamp says that it did.
            end = command("supervisorctl", "-c", "/run/supervisor.conf", "start", "stamp", codes=(0, 7))
            return lambda: (end(), stamp_ended(rpc()) if rpc else None)

        def by_rpc():
            server = rpc()
            server.supervisor.startProcess("stamp", False)
            return lambda: stamp_ended(server)
        ways = {"acc-ctl submit": lambda: command(f"{self.folder}/acc-ctl", "submit", "--", *self.words(self.stamp, path), stderr=subprocess.DEVNULL),
                "systemd-run --wait": lambda: command("systemd-run", "--wait", "--quiet", self.stamp, path),
                "HTTP to acc-agent": by_http}
        rpc = None
        if self.supervisor:
            ways["supervisorctl start"] = by_supervisorctl
            with contextlib.suppress(ImportError):
                import xmlrpc.client
                from supervisor.xmlrpc import SupervisorTransport
                ways["XML-RPC to supervisord"] = by_rpc

                def rpc():
                    return xmlrpc.client.ServerProxy("http://127.0.0.1", transport=SupervisorTransport(None, None, "unix:///run/supervisor.sock"))
        for _ in range(self.args.reps + 1):
            for name, way in ways.items():
                self.timed.measure(name, 1, way)
        for name, took in self.timed.took.items():
            self.samples[f"submit, ms: {name}"] = took[1:]

    def ps(self):
        have = http(self.socket, "GET", "/v1/jobs", "").count('"id"')
        for _ in range(200 - have):
            http(self.socket, "POST", "/v1/jobs", json.dumps({"name": "t", "working_directory": "/", "words": self.words("true")}))
        self.ended()
        for _ in range(200):
            subprocess.run(["systemd-run", "--quiet", "--remain-after-exit", "true"], check=True)
        took = {"acc-ctl ps": [], "systemctl list-units": []}
        for _ in range(self.args.reps + 1):
            for name in took:
                first, *rest = name.split()
                before = time.monotonic()
                shown = subprocess.run([f"{self.folder}/acc-ctl" if first == "acc-ctl" else first, *rest], stdin=subprocess.DEVNULL, capture_output=True, check=True)
                took[name].append((time.monotonic() - before) * 1e3)
                assert len(shown.stdout.splitlines()) > 200
        for name, times in took.items():
            self.samples[f"200 known, ms: {name}"] = times[1:]

    def idle(self):
        """Of daemons that were just started and have one sleeping job."""
        http(self.socket, "POST", "/v1/jobs", json.dumps({"name": "sleeper", "working_directory": "/", "words": self.words("sleep", "100000")}))
        time.sleep(3)
        pids = {"acc-agent": self.agent.pid, **({"supervisord": self.supervisor.pid} if self.supervisor else {})}
        before, began = {name: usage(pid) for name, pid in pids.items()}, time.monotonic()
        time.sleep(10)
        for name, pid in pids.items():
            rss, switches = usage(pid)
            self.samples[f"idle, MiB: {name}"] = [rss]
            self.samples[f"idle, wake-ups/s: {name}"] = [(switches - before[name][1]) / (time.monotonic() - began)]
        id = re.search(r'"id": *"(sleeper-[a-z0-9]+)"', http(self.socket, "GET", "/v1/jobs", ""))[1]
        http(self.socket, "POST", f"/v1/jobs/{id}/stop", '{"grace_s": 0}')
        self.ended()

    def run(self):
        errors = []
        for part in ("idle", "submit", "ps"):
            if part in self.args.parts.split(","):
                try:
                    getattr(self, part)()
                except (Exception, SystemExit) as error:  # what was measured before counts
                    errors.append(f"{part}: {type(error).__name__}: {error}")
        self.agent.kill()
        if self.supervisor:
            self.supervisor.send_signal(signal.SIGTERM)
        print(json.dumps({"samples": self.samples, "absent": self.absent, "errors": errors}))


# ---- on hosts ----
class OnHosts:
    names = "a b c d e f g h"

    def __init__(self, args, folder):
        sys.path.insert(0, os.path.join(HERE, "../integration"))
        os.environ["ACC_BIN"] = args.bin
        import hosts
        import test_agent_cluster
        if hosts.WHY_NOT:
            raise SystemExit(hosts.WHY_NOT)
        self.args, self.folder = args, folder
        self.hosts = hosts.Hosts(self.names)
        self.list = self.names.split()
        self.samples, self.absent = {}, []
        self.timed = Timed(folder)
        addresses = {name: self.hosts.address(name) for name in self.list}
        for name in self.list:
            self.hosts.hosts_entry(name, addresses)
        self.secret = secret = os.path.join(folder, "secret")
        subprocess.run([f"{args.bin}/acc-launch", "--make_secret", secret], check=True, capture_output=True)
        state = os.path.join(folder, "daemons")
        os.mkdir(state)
        self.daemons = [test_agent_cluster.NodeDaemon(self.hosts, name, state, "--secret-file", secret, "--listen", "29700") for name in self.list]
        for daemon in self.daemons:
            daemon.wait_ready()
        self.environment = {**os.environ, "ACC_AGENT_SOCKET": self.daemons[0].path, "HOME": folder}

    def begin_sshd(self):
        sshd = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
        if not sshd:
            return False
        os.makedirs("/run/sshd", exist_ok=True)
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.folder}/{name}_key"], check=True)
        shutil.copy(f"{self.folder}/user_key.pub", f"{self.folder}/authorized")
        with open(f"{self.folder}/sshd_config", "w") as file:
            file.write(f"HostKey {self.folder}/host_key\nAuthorizedKeysFile {self.folder}/authorized\nStrictModes no\nUsePAM no\n"
                       "PermitRootLogin prohibit-password\nPidFile none\nPort 2222\nMaxStartups 100\nUseDNS no\n")
        for name in self.list:
            self.hosts.run(name, [sshd, "-D", "-e", "-f", f"{self.folder}/sshd_config"], stderr=subprocess.DEVNULL)
        for name in self.list:
            wait(lambda: ":2222" in self.hosts.output(name, "ss", "-tlnH"), f"sshd on {name}")
        self.ssh = os.path.join(self.folder, "ssh")
        with open(self.ssh, "w") as file:
            file.write(f"#!/bin/sh\nexec ssh -p 2222 -i {self.folder}/user_key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR \"$@\"\n")
        os.chmod(self.ssh, 0o755)
        return True

    def on_a(self, *words, **options):
        process = self.hosts.run("a", list(words), stdin=subprocess.DEVNULL, env=self.environment, stdout=options.pop("stdout", subprocess.DEVNULL), cwd=self.folder, **options)

        def end():
            if process.wait(60):
                raise SystemExit(f"{' '.join(words)}: exit code {process.returncode}")
        return end

    def started_by_hand(self):
        """What a launch costs without the service: acc-launch on each host, all let go at once."""
        words = [f"{self.args.bin}/acc-launch", "--nnodes", "8", "--nproc_per_node", "1", "--rdzv_backend", "tcp", "--rdzv_endpoint", f"{self.hosts.address('a')}:29400",
                 "--rdzv_id", f"hand{time.monotonic_ns()}", "--secret_file", self.secret, "--cpu", "--num_cpu_threads_per_process", "1", "--no_python",
                 f"{self.folder}/stamp", self.timed.path]
        waiting = [self.hosts.run(name, ["sh", "-c", 'echo; read -r go; exec "$@"', "sh", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  env=self.environment, cwd=self.folder) for name in self.list]
        for process in waiting:
            process.stdout.readline()

        def begin():
            for process in waiting:
                process.stdin.write(b"go\n")
                process.stdin.flush()

            def end():
                for process in waiting:
                    process.communicate(timeout=60)
            return end
        self.timed.measure("acc-launch on each, by hand", 8, begin)

    def peers(self):
        stamp, path = f"{self.folder}/stamp", self.timed.path
        ways = {"acc-launch --hosts": lambda: self.on_a(f"{self.args.bin}/acc-launch", "--hosts", ",".join(f"{name}:1" for name in self.list), "--cpu",
                                                        "--num_cpu_threads_per_process", "1", "--no_python", stamp, path)}
        has_ssh = self.begin_sshd()
        if has_ssh:
            options = f"-p 2222 -i {self.folder}/user_key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
            ways["acc-launch --hosts --ssh"] = lambda: self.on_a(f"{self.args.bin}/acc-launch", "--hosts", ",".join(f"{name}:1" for name in self.list), "--ssh",
                                                                  "--ssh_options", options, "--remote_launch", f"{self.args.bin}/acc-launch", "--cpu",
                                                                  "--num_cpu_threads_per_process", "1", "--no_python", stamp, path)
        mpirun, hydra = shutil.which("mpirun.openmpi"), shutil.which("mpiexec.hydra")
        if has_ssh and mpirun:
            ways["mpirun over ssh"] = lambda: self.on_a(mpirun, "--allow-run-as-root", "-np", "8", "--host", ",".join(f"{name}:1" for name in self.list), "--mca",
                                                        "plm_rsh_agent", self.ssh, "--mca", "oob_tcp_if_include", "eth0", stamp, path)
        if has_ssh and hydra:
            ways["hydra over ssh"] = lambda: self.on_a(hydra, "-launcher", "ssh", "-launcher-exec", self.ssh, "-hosts", ",".join(self.list), "-iface", "eth0",
                                                       "-n", "8", stamp, path)
        self.absent += [name for name, there in (("openssh-server", has_ssh), ("openmpi-bin", mpirun), ("mpich", hydra)) if not there]
        return ways

    def start(self):
        ways = self.peers()
        for _ in range(self.args.reps // 2 + 1):
            for name, way in ways.items():
                self.timed.measure(name, 8, way)
            self.started_by_hand()
        for name, took in self.timed.took.items():
            self.samples[f"8 hosts, ms to the last worker: {name}"] = took[1:]
        program = f"{self.args.bin}/acc-bench-rendezvous"
        if os.path.exists(program):
            rows = [json.loads(subprocess.run([program, "--tls", "8"], capture_output=True, check=True, text=True).stdout.splitlines()[-1]) for _ in range(5)]
            log("acc-bench-rendezvous --tls 8:", rows[-1])
            key = next((key for key in ("join_to_all_assigned_ms",) if key in rows[0]), None)
            if key:
                self.samples["8 hosts, ms of it: rendezvous"] = [row[key] for row in rows]

    def output(self):
        lines, count = f"{self.folder}/lines", self.args.lines
        ways = {"acc-launch --hosts": [f"{self.args.bin}/acc-launch", "--hosts", "b:4", "--cpu", "--num_cpu_threads_per_process", "1", "--no_python", lines, str(count)]}
        if getattr(self, "ssh", None) and shutil.which("mpirun.openmpi"):
            ways["mpirun over ssh"] = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", "4", "--host", "b:4", "--tag-output", "--mca", "plm_rsh_agent", self.ssh, "--mca",
                                       "oob_tcp_if_include", "eth0", lines, str(count)]
        whole = re.compile(rb"[^w]*w\d \d{8} step loss=0\.123456 lr=1\.0e-04")
        for name, words in ways.items():
            rates, torn = [], 0
            for _ in range(3):
                began = time.monotonic()
                process = self.hosts.run("a", words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=self.environment, cwd=self.folder)
                text = process.communicate(timeout=120)[0]
                rates.append(4 * count / (time.monotonic() - began))
                torn = max(torn, 4 * count - sum(1 for line in text.split(b"\n") if whole.fullmatch(line)))
            self.samples[f"lines/s from another host: {name}"] = rates
            self.samples[f"lines of {4 * count:,} torn or lost: {name}"] = [torn]

    def close(self):
        for daemon in self.daemons:
            daemon.process.kill()
            daemon.process.wait()
        self.hosts.close()


def compile_programs(folder):
    for name, text in (("stamp", STAMP_C), ("lines", LINES_C)):
        subprocess.run(["cc", "-O2", "-x", "c", "-", "-o", f"{folder}/{name}"], input=text, text=True, check=True)


def under_systemd(args, folder):
    with tempfile.TemporaryDirectory() as tree:
        os.chmod(tree, 0o755)  # it becomes the mode of /
        place = os.path.join(tree, "srv/acc")
        os.makedirs(place)
        for program in ("acc-agent", "acc-ctl", "acc-launch"):
            shutil.copy(os.path.join(args.bin, program), place)
        shutil.copy(os.path.join(folder, "stamp"), place)
        shutil.copy(__file__, place)
        done = subprocess.run([os.path.join(HERE, "../integration/systemd/with_systemd.sh"), tree, "/usr/bin/python3", "/srv/acc/service_bench.py", "--inside",
                               "--parts", args.parts, "--reps", str(args.reps)], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        log(f"no systemd here (exit code {done.returncode}): submit, ps and idle are left out")
        return {"samples": {}, "absent": ["systemd"], "errors": []}
    return json.loads(done.stdout.splitlines()[-1])


def table(figures):
    for name, value in figures.items():
        group, _, who = name.partition(": ")
        ours = next((v for n, v in figures.items() if n.startswith(group + ": acc") or n.startswith(group + ": HTTP")), None)
        log(f"{group:34} {who:28} {value:12.4g}" + (f"   x{value / ours:.3g}" if ours and value != ours else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(HERE, "../../build/release/bin"))
    parser.add_argument("--parts", default="submit,ps,idle,hosts,output")
    parser.add_argument("--reps", type=int, default=20)
    parser.add_argument("--lines", type=int, default=200_000, help="of each of 4 workers, in output")
    parser.add_argument("--json", help="write the JSON object there instead of to stdout")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.bin = os.path.abspath(args.bin)
    if args.inside:
        Inside(args, os.path.dirname(os.path.abspath(__file__))).run()
        return
    parts = args.parts.split(",")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        compile_programs(folder)
        found = under_systemd(args, folder) if {"submit", "ps", "idle"} & set(parts) else {"samples": {}, "absent": [], "errors": []}
        if {"hosts", "output"} & set(parts):
            hosts = OnHosts(args, folder)
            try:
                if "hosts" in parts:
                    hosts.start()
                if "output" in parts:
                    hosts.output()
            finally:
                hosts.close()
            found["samples"].update(hosts.samples)
            found["absent"] += hosts.absent
    figures = {name: statistics.median(values) for name, values in found["samples"].items()}
    table(figures)
    for error in found["errors"]:
        log("failed:", error)
    text = json.dumps({"figures": figures, **found, "reps": args.reps, "cpus": os.cpu_count()}, indent=1)
    if args.json:
        with open(args.json, "w") as file:
            file.write(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
