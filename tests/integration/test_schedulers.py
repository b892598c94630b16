"""acc-launch under a real Slurm and a real Open MPI: the same command line in every task, without an address or a rank."""
import contextlib, json, os, re, shutil, socket, subprocess, tempfile, unittest

import harness
import slurm
from harness import ACC, BIN, PATIENCE, PROGRAMS, SANITIZED, free_port, is_free, is_root, read, until, write

shutil.copy(os.path.join(BIN, "acc-ctl"), PROGRAMS.name)  # the batch script of the page names it


def free_ports():
    """The first of three that no other test takes: slurmctld's, and those of the nodes' daemons."""
    while True:
        first = free_port()  # and the next one
        third = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            third.bind(f"\0acc-test/port/{first + 2}")
            if is_free(first + 2):
                harness.RESERVED.append(third)
                return first
        third.close()


def plans_in(folder):
    """What each task planned, by its number."""
    found = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            plan = json.load(file)
        found[plan["cluster"]["wanted_rank"] if "cluster" in plan else None] = plan
    return found


class Planning(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="acc-plans-")
        os.chmod(self.folder, 0o755)
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        write(self.folder + "/facts.json", '{"gpus": 0}')
        self.plans = self.folder + "/plans"
        os.mkdir(self.plans)
        self.env = {"HOME": self.folder, "PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": ""}

    def line(self, flags=""):
        """A shell's command that leaves this task's plan behind."""
        return ["sh", "-c", f"exec {ACC} --print_plan --host_facts {self.folder}/facts.json {flags} train.py >{self.plans}/$$"]

    def check_one_job(self, run):
        """Rank 1 fails once; the others would hold for ever, so that only agents that know of each other come to the second round."""
        write(self.folder + "/worker.sh", """#!/bin/sh
echo "round $TORCHELASTIC_RESTART_COUNT rank $RANK of $WORLD_SIZE node $GROUP_RANK"
[ "$TORCHELASTIC_RESTART_COUNT" = 1 ] && exit 0
[ "$RANK" = 1 ] && exit 3
exec sleep 1000
""", 0o755)
        done = run("-n", "3", ACC, "--max_restarts=1", "--grace=2", "--capture=no", "./worker.sh")
        said = [line for line in done.stdout.splitlines() if line.startswith("round 1")]
        self.assertEqual(sorted(said), [f"round 1 rank {i} of 3 node {i}" for i in range(3)], done.stderr)


class RealSlurm(Planning):
    @classmethod
    def setUpClass(cls):
        why = slurm.missing()
        if why:
            raise unittest.SkipTest(why)
        cls.slurm = slurm.Slurm(free_ports())
        cls.addClassCleanup(cls.slurm.stop)
        cls.slurm.start()
        print(cls.slurm.version(), flush=True)

    def srun(self, *words):
        done = self.slurm.srun(*words, env=self.env, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_one_task_a_node_is_one_machine_a_node(self):
        done = self.srun("-N", "2", "--ntasks-per-node=1", *self.line())
        plans = plans_in(self.plans)
        self.assertEqual(sorted(plans), [0, 1])
        for rank, plan in plans.items():
            cluster = plan["cluster"]
            self.assertEqual((cluster["control_host"], cluster["backend"], cluster["hosting"]), ("acc1", "tcp", "never" if rank else "must"))
            self.assertEqual(plan["launch"]["nnodes_max"], 2)
        self.assertEqual(len({plan["cluster"]["control_port"] for plan in plans.values()}), 1)
        self.assertRegex(done.stderr, r"note: Slurm step \d+\.0: 2 tasks, this is number 1; the machines meet at acc1:2\d{4}")

    def test_tasks_on_one_node_are_machines_on_loopback(self):
        self.srun("-N", "1", "-n", "4", *self.line())
        plans = plans_in(self.plans)
        self.assertEqual(sorted(plans), [0, 1, 2, 3])
        self.assertEqual({plan["cluster"]["loopback"] for plan in plans.values()}, {True})
        self.assertEqual({plan["launch"]["nproc_per_node"] for plan in plans.values()}, {1})

    def test_an_uneven_layout_is_understood(self):
        self.srun("-N", "2", "-n", "3", *self.line("--nproc-per-node=2"))
        plans = plans_in(self.plans)
        self.assertEqual(sorted(plans), [0, 1, 2])
        self.assertEqual({plan["launch"]["nproc_per_node"] for plan in plans.values()}, {2})

    def test_one_task_is_no_cluster(self):
        self.srun("-N", "1", "-n", "1", *self.line())
        self.assertEqual(list(plans_in(self.plans)), [None])

    def test_a_batch_script_is_one_of_one(self):
        script = self.folder + "/batch.sh"
        write(script, "#!/bin/sh\n" + self.line()[2].replace("exec ", "").replace("$$", "batch.tmp") +
              f"\nenv >{self.folder}/env\nmv {self.plans}/batch.tmp {self.plans}/batch\n", 0o755)
        done = subprocess.run(["sbatch", "-N", "2", "-n", "2", "-o", self.folder + "/batch.out", script], env={**self.slurm.env, **self.env},
                              cwd=self.folder, capture_output=True, text=True, timeout=30 * PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        until(lambda: os.path.exists(self.plans + "/batch"), "the batch script", 30)
        self.assertIn("SLURM_NTASKS=2", read(self.folder + "/env"))
        self.assertEqual(list(plans_in(self.plans)), [None])

    @unittest.skipIf(SANITIZED, "Python loads the library, and a sanitizer wants its own first")
    def test_a_program_that_a_batch_script_started_without_srun_waited_for_tasks_that_nothing_had_started(self):
        library = os.path.abspath(os.path.join(BIN, "../lib/libacc.so"))
        write(self.folder + "/group.py", f"""import ctypes
library, group = ctypes.CDLL({library!r}), ctypes.c_void_p()
for _ in range(2): assert library.acc_init(None, ctypes.byref(group)) == 0
print(f"rank {{library.acc_rank(group)}} of {{library.acc_size(group)}}", flush=True)
""")
        script = self.folder + "/batch.sh"
        write(script, "#!/bin/sh\nexport ACC_INIT_TIMEOUT=30\npython3 group.py\necho then\nsrun -n 2 python3 group.py\necho done\n", 0o755)
        done = subprocess.run(["sbatch", "-N", "1", "-n", "2", "-o", self.folder + "/batch.out", script], env={**self.slurm.env, **self.env},
                              cwd=self.folder, capture_output=True, text=True, timeout=30 * PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        until(lambda: os.path.exists(self.folder + "/batch.out") and read(self.folder + "/batch.out").endswith("done\n"), "the batch script", 60)
        alone, together = read(self.folder + "/batch.out").split("then\n")
        self.assertRegex(alone, r"\Aacc: note: Slurm job \d+ has 2 tasks, and this process was started without srun, or .*\nrank 0 of 1\n\Z")
        self.assertEqual(sorted(together.splitlines()), ["done", "rank 0 of 2", "rank 1 of 2"])

    def test_workers_of_all_tasks_are_one_job(self):
        self.check_one_job(lambda *words: self.srun("-N", "1", *words))

    def of_page(self, nodes, program):
        """Its batch script, but on the one host that is here, without GPUs, and not requeued."""
        page = read(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/from-slurm.md"))
        script = re.search(r"^(#!/bin/bash\n.*?)^EOF$", page, re.M | re.S)[1]
        script, changed = re.subn(r"--nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n#SBATCH --cpus-per-task=64", nodes, script)
        self.assertEqual(changed, 1)
        write(self.folder + "/train.sbatch", script.replace("scontrol requeue", "echo requeue"), 0o755)
        write(self.folder + "/train.py", program)
        return {**self.slurm.env, **self.env, "PATH": PROGRAMS.name + ":" + self.slurm.env["PATH"]}

    def test_the_batch_script_of_the_page_trains_on_all_tasks(self):
        env = self.of_page("--nodes=1\n#SBATCH --ntasks-per-node=2", "import os\nprint('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], flush=True)\n")
        done = subprocess.run(["sbatch", "--wait", "-o", self.folder + "/train.out", self.folder + "/train.sbatch"], env=env, cwd=self.folder,
                              capture_output=True, text=True, timeout=120 * PATIENCE, check=False)
        said = read(self.folder + "/train.out")
        self.assertEqual(done.returncode, 0, done.stderr + said)
        self.assertEqual(sorted(line for line in said.splitlines() if line.startswith("rank")), ["rank 0 of 2", "rank 1 of 2"], said)

    def test_data_loaders_died_of_the_signal_at_which_the_script_was_to_save(self):
        """Forks that have no handler for it; the script's own notes it and saves."""
        env = self.of_page("--nodes=1\n#SBATCH --ntasks-per-node=1", "import os, signal, sys, time\n"
                           "loader = os.fork()\nif loader == 0:\n    while True: time.sleep(1)\n"
                           "stop = []; signal.signal(signal.SIGUSR1, lambda *_: stop.append(1))\nopen('up', 'w').close()\n"
                           "while not stop:\n    if os.waitpid(loader, os.WNOHANG)[0]: sys.exit('the loader died')\n    time.sleep(0.05)\n"
                           "time.sleep(1); print('saved', len(stop), os.waitpid(loader, os.WNOHANG), flush=True)\n")
        done = subprocess.run(["sbatch", "--parsable", "-o", self.folder + "/train.out", self.folder + "/train.sbatch"], env=env, cwd=self.folder,
                              capture_output=True, text=True, timeout=30 * PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.addCleanup(subprocess.run, ["scancel", done.stdout.strip()], env=env, check=False)
        until(lambda: os.path.exists(self.folder + "/up"), "the worker", 60)
        subprocess.run(["scancel", "--batch", "--signal=USR1", done.stdout.strip()], env=env, check=True)
        until(lambda: "requeue " in read(self.folder + "/train.out"), lambda: "the end of the script: " + read(self.folder + "/train.out"), 60)
        self.assertIn("saved 1 (0, 0)", read(self.folder + "/train.out"))

    def test_the_pre_emption_signal_came_twice_and_broke_into_the_checkpoint(self):
        """Slurm signals each process of a step. `exit` in a handler of Python, as many scripts have it: the second one ends the saving."""
        write(self.folder + "/train.py", "import os, signal, sys, time\n"
              "signal.signal(signal.SIGUSR1, lambda *_: (print('rank', os.environ['RANK'], 'got it', flush=True), sys.exit(0)))\n"
              "try:\n    open('up' + os.environ['RANK'], 'w').close()\n    while True: time.sleep(0.05)\n"
              "finally:\n    time.sleep(1); print('rank', os.environ['RANK'], 'saved', flush=True)\n")
        write(self.folder + "/train.sbatch", f"#!/bin/sh\nsrun -n 1 --kill-on-bad-exit=0 {ACC} --cpu --num_processes 2 --preempt_signals USR1 --preempt_grace 30 train.py\necho ended $?\n", 0o755)
        env = {**self.slurm.env, **self.env}
        done = subprocess.run(["sbatch", "--parsable", "-n", "1", "-o", self.folder + "/train.out", self.folder + "/train.sbatch"], env=env, cwd=self.folder,
                              capture_output=True, text=True, timeout=30 * PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.addCleanup(subprocess.run, ["scancel", done.stdout.strip()], env=env, check=False)
        until(lambda: all(os.path.exists(f"{self.folder}/up{rank}") for rank in (0, 1)), "both ranks", 60)
        subprocess.run(["scancel", "--signal=USR1", done.stdout.strip()], env=env, check=True)
        until(lambda: "ended" in read(self.folder + "/train.out"), "the end of the script", 60)
        said = read(self.folder + "/train.out")
        for rank in (0, 1):
            self.assertEqual([line for line in said.splitlines() if line.startswith(f"rank {rank}")], [f"rank {rank} got it", f"rank {rank} saved"], said)
        self.assertIn("ended 75", said)


class RealOpenMpi(Planning):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("mpirun"):
            raise unittest.SkipTest("not installed: mpirun")
        version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
        if "Open MPI" not in version:
            raise unittest.SkipTest("mpirun is not Open MPI's: " + version)
        print(version, flush=True)

    def mpirun(self, *words):
        root = ["--allow-run-as-root"] if is_root() else []
        done = slurm.run_to_end(["mpirun", *root, "--oversubscribe", *words], self.env, self.folder, 60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_tasks_are_machines_that_meet_on_loopback(self):
        done = self.mpirun("-n", "3", *self.line())
        plans = plans_in(self.plans)
        self.assertEqual(sorted(plans), [0, 1, 2])
        self.assertEqual([plans[i]["cluster"]["hosting"] for i in range(3)], ["must", "never", "never"])
        self.assertEqual({plan["cluster"]["control_host"] for plan in plans.values()}, {"127.0.0.1"})
        self.assertEqual(len({plan["cluster"]["control_port"] for plan in plans.values()}), 1)
        self.assertRegex(done.stderr, r"note: Open MPI job \d+: 3 tasks, this is number 2; the machines meet at 127.0.0.1:2\d{4}")

    def test_one_task_is_no_cluster(self):
        self.mpirun("-n", "1", *self.line())
        self.assertEqual(list(plans_in(self.plans)), [None])

    def test_flags_win(self):
        self.mpirun("-n", "2", *self.line("--rdzv-endpoint=10.0.0.9:4000 --rdzv-backend=c10d"))
        self.assertEqual({plan["cluster"]["control_host"] for plan in plans_in(self.plans).values()}, {"10.0.0.9"})

    def test_workers_of_all_tasks_are_one_job(self):
        self.check_one_job(self.mpirun)


if __name__ == "__main__":
    unittest.main()
