"""A whole Slurm of two nodes on this host, for one test: munged, slurmctld and slurmd of Debian, as this user. Nothing of it is
left behind."""
import contextlib, os, shutil, subprocess, tempfile

from harness import read, until, write

PROGRAMS = ("munged", "munge", "slurmctld", "slurmd", "srun", "sinfo")
CONFIG = """
ClusterName=acc-test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
PlugStackConfig=/dev/null
"""


def missing():
    """Why there can't be one here; None if it can."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    absent = [name for name in PROGRAMS if not shutil.which(name, path=path)]
    if absent:
        return "not installed: " + ", ".join(absent)
    return None if os.geteuid() == 0 else "slurmd must be root"


def run_to_end(words, env, cwd, deadline):
    """As subprocess.run, but whoever is late gets SIGTERM first, so that it ends its tasks, too."""
    with subprocess.Popen(words, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, err = process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                out, err = process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
            err += f"\nended by the test after {deadline} s"
    return subprocess.CompletedProcess(words, process.returncode, out, err)


class Slurm:
    """with Slurm(17001) as slurm: slurm.srun("-n", "4", "env")   The nodes acc1 and acc2 take the ports after the first."""

    def __init__(self, port):
        self.folder = tempfile.mkdtemp(prefix="acc-slurm-")
        os.chmod(self.folder, 0o755)
        self.env = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", "SLURM_CONF": self.folder + "/slurm.conf"}
        self.daemons = []
        os.mkdir(self.folder + "/state")
        nodes = "".join(f"NodeName=acc{i} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port + i} CPUs=4 State=UNKNOWN\n" for i in (1, 2))
        write(self.folder + "/slurm.conf", CONFIG.format(folder=self.folder, user="root", port=port) + nodes +
              "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES\n")
        write(self.folder + "/cgroup.conf", "CgroupPlugin=cgroup/v1\n")

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        with open(self.folder + "/munge.key", "wb") as file:
            file.write(os.urandom(64))
        os.chmod(self.folder + "/munge.key", 0o600)
        f = self.folder
        self.spawn("munged", "-F", "-f", f"--socket={f}/munge.socket", f"--key-file={f}/munge.key", f"--log-file={f}/munged.log",
                   f"--pid-file={f}/munged.pid", f"--seed-file={f}/munged.seed")
        until(lambda: os.path.exists(f + "/munge.socket"), "munged", 10)
        self.spawn("slurmctld", "-D", "-f", f + "/slurm.conf")
        for node in ("acc1", "acc2"):
            os.mkdir(f"{f}/spool-{node}")
            self.spawn("slurmd", "-D", "-f", f + "/slurm.conf", "-N", node)
        until(self.is_idle, "two idle nodes: " + f, 30)

    def spawn(self, *words):
        with open(f"{self.folder}/{words[0]}-{len(self.daemons)}.out", "w") as out:
            self.daemons.append(subprocess.Popen(words, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out))

    def is_idle(self):
        for daemon in self.daemons:
            if daemon.poll() is not None:
                raise AssertionError(f"{daemon.args} ended: {self.said()}")
        done = subprocess.run(["sinfo", "-h", "-o", "%T %D"], env=self.env, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout.split() == ["idle", "2"]

    def said(self):
        return "\n".join(read(os.path.join(self.folder, name))[-1500:] for name in os.listdir(self.folder) if name.endswith((".out", ".log")))

    def srun(self, *words, env=None, cwd="/", timeout=60):
        return run_to_end(["srun", "--time=2", *words], {**self.env, **(env or {})}, cwd, timeout)

    def version(self):
        return subprocess.run(["srun", "--version"], env=self.env, capture_output=True, text=True, check=True).stdout.strip()

    def end_jobs(self):
        """A step that nobody ends would outlive its daemons."""
        quick = {"env": self.env, "capture_output": True, "text": True, "timeout": 20, "check": False}
        with contextlib.suppress(OSError, subprocess.TimeoutExpired, AssertionError):
            if subprocess.run(["squeue", "-h"], **quick).stdout.strip():
                subprocess.run(["scancel", "--user=root"], **quick)
                until(lambda: not subprocess.run(["squeue", "-h"], **quick).stdout.strip(), "the last job's end", 20)

    def stop(self):
        if len(self.daemons) > 1:
            self.end_jobs()
        for daemon in reversed(self.daemons):
            if daemon.poll() is None:
                daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons = []
        shutil.rmtree(self.folder, ignore_errors=True)
