"""Groups by the variables of every launcher: further ones beside the first and after it, two jobs on one host, and what is told
when a host lacks something that the runtime likes to have."""
import json, os, re, shutil, signal, subprocess, sys, tempfile, unittest

from harness import BIN, PATIENCE, SANITIZED, SLACK, free_port, main, read, until
from hosts import needs_hosts
from test_control import ask_at
from test_torch import PYTHON as TORCH

WORKER = os.path.join(BIN, "groups_worker")
TORCHRUN = [TORCH, os.path.join(os.path.dirname(os.path.abspath(__file__)), "torchrun.py")]
LIMIT = str(30 * SLACK)


def start(command, **variables):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("ACC_", "OMPI_", "PMI", "SLURM_")) or name == "ACC_BIN"}
    env.update(ACC_INIT_TIMEOUT=LIMIT, ACC_COLLECTIVE_TIMEOUT=LIMIT)
    env.update((name, str(value)) for name, value in variables.items())
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def by_hand(rank, ranks, port, *command, address="127.0.0.1", **variables):
    return start(list(command), RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=ranks, LOCAL_WORLD_SIZE=ranks, MASTER_ADDR=address, MASTER_PORT=port, **variables)


def end(job):
    job.kill()
    job.communicate()


class GroupsTest(unittest.TestCase):
    def outputs(self, processes, deadline=60):
        texts = []
        try:
            for process in processes:
                texts.append(process.communicate(timeout=deadline * PATIENCE)[0])
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.communicate()
        return texts

    def made(self, text, groups, ranks):
        self.assertEqual(len(re.findall(rf"made {groups} groups", text)), ranks, text)


class Several(GroupsTest):
    CASES = [(20, "cpp", "overlap"), (20, "c", "sequence"), (20, "both", "overlap"), (60, "both", "sequence")]

    def under(self, launcher, ranks=3):
        for groups, library, how in self.CASES:
            with self.subTest(groups=groups, library=library, how=how):
                job = start([*launcher(), WORKER, str(groups), library, how], JOB="a")
                text = self.outputs([job])[0]
                self.made(text, groups, ranks)
                self.assertEqual(job.returncode, 0, text)

    def test_by_hand(self):
        for groups, library, how in self.CASES:
            with self.subTest(groups=groups, library=library, how=how):
                port = free_port()
                ranks = [by_hand(r, 3, port, WORKER, str(groups), library, how, JOB="a") for r in range(3)]
                self.made("".join(self.outputs(ranks)), groups, 3)

    @unittest.skipUnless(TORCH, "no Python here has torch (Debian: python3-torch)")
    def test_torchrun(self):
        self.under(lambda: [*TORCHRUN, "--nproc_per_node", "3", "--master_port", str(free_port()), "--no_python"])

    @unittest.skipUnless(TORCH, "no Python here has torch (Debian: python3-torch)")
    def test_torchrun_on_two_nodes(self):
        """Both are this host: they use ports all the same, and not the one of torchrun's own store."""
        for rendezvous in (["--master_addr", "127.0.0.1", "--master_port"], ["--rdzv_backend", "c10d", "--rdzv_id", "q", "--rdzv_endpoint"]):
            with self.subTest(rendezvous=rendezvous[0]):
                port = free_port()
                at = rendezvous + [str(port) if rendezvous[-1] == "--master_port" else f"127.0.0.1:{port}"]
                nodes = [start([*TORCHRUN, "--nnodes", "2", "--node_rank", str(node), "--nproc_per_node", "2", *at, "--no_python", WORKER, "5", "both", "overlap"], JOB="a") for node in range(2)]
                self.made("".join(self.outputs(nodes)), 5, 4)

    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "no mpirun.openmpi (Debian: openmpi-bin)")
    def test_openmpi(self):
        self.under(lambda: ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", "3"])

    @unittest.skipUnless(shutil.which("mpirun.mpich"), "no mpirun.mpich (Debian: mpich)")
    def test_mpich(self):
        self.under(lambda: ["mpirun.mpich", "-n", "3"])

    @unittest.skipUnless(shutil.which("mpirun.mpich"), "no mpirun.mpich (Debian: mpich)")
    def test_mpich_through_a_script_that_does_not_exec(self):
        job = start(["mpirun.mpich", "-n", "3", "sh", "-c", '"$@"; exit $?', "sh", WORKER, "3", "both", "overlap"], JOB="a")
        self.made(self.outputs([job])[0], 3, 3)

    def test_acc_launch(self):
        self.under(lambda: [os.path.join(BIN, "acc-launch"), "--num_processes", "3", "--no_python"])


class Programs(GroupsTest):
    """A worker that is a script with two programs: what the first has left in the agent's store is not met by the second."""
    LAUNCH = os.path.join(BIN, "acc-launch")
    SCRIPT = ["sh", "-c", '"$@" && "$@"', "sh"]

    def launched(self, *words, flags=(), **variables):
        job = start([self.LAUNCH, *flags, "--no_python", *words], JOB="a", **variables)
        text = self.outputs([job])[0]
        return job.returncode, text

    def test_a_second_program_of_a_worker_forms_its_groups(self):
        for groups, library, how in ((1, "cpp", "overlap"), (3, "both", "sequence")):
            with self.subTest(groups=groups):
                code, text = self.launched(*self.SCRIPT, WORKER, str(groups), library, how, flags=["--num_processes", "3"])
                self.made(text, groups, 6)
                self.assertEqual(code, 0, text)

    def test_a_first_program_that_forms_other_numbers_of_groups_on_some_ranks(self):
        """The single groups of the first program aren't counted: rank 0 has formed none there."""
        script = f'[ "$RANK" = 0 ] || env -u RANK -u WORLD_SIZE -u ACC_AGENT_SOCKET {WORKER} 1 cpp overlap; exec {WORKER} 2 cpp overlap'
        code, text = self.launched("sh", "-c", script, flags=["--num_processes", "2"])
        self.made(text, 2, 2)
        self.assertEqual(code, 0, text)

    def test_on_two_nodes(self):
        for rendezvous in (["--main_process_ip", "127.0.0.1", "--main_process_port"], ["--rdzv_backend", "c10d", "--rdzv_id", "q", "--rdzv_endpoint"]):
            with self.subTest(rendezvous=rendezvous[0]):
                port = free_port()
                at = rendezvous + [str(port) if rendezvous[-1] == "--main_process_port" else f"127.0.0.1:{port}"]
                nodes = [start([self.LAUNCH, "--nnodes", "2", "--node_rank", str(node), "--nproc_per_node", "2", *at, "--no_python", *self.SCRIPT, WORKER, "2", "both", "overlap"], JOB="a")
                         for node in range(2)]
                self.made("".join(self.outputs(nodes)), 2, 8)
                self.assertEqual([node.returncode for node in nodes], [0, 0])

    def test_a_restarted_worker_begins_anew(self):
        """Rank 1 crashes between its programs, once both ranks have ended the first: the restart would end rank 0's before its line."""
        with tempfile.TemporaryDirectory() as folder:
            crash = f'[ "$ACC_ROUND" = 0 ] && [ "$RANK" = 1 ] && {{ until [ -e {folder}/0 ]; do sleep 0.05; done; kill -9 $$; }}'
            script = f'{WORKER} 1 cpp overlap && : >{folder}/$RANK && {{ {crash}; {WORKER} 1 cpp overlap; }}'
            code, text = self.launched("sh", "-c", script, flags=["--num_processes", "2", "--max_restarts", "1"])
        self.made(text, 1, 2 + 4)
        self.assertEqual(code, 0, text)

    def test_a_program_that_crashes_before_its_group_and_is_tried_again(self):
        """Ranks 0 and 2 lose the crashed one, and all meet as the next of their programs."""
        with tempfile.TemporaryDirectory() as folder:
            script = (f'for run in 1 2 3; do if [ "$RANK$run" = 11 ]; then timeout -s KILL 1 {WORKER} 1 cpp overlap; : >{folder}/killed; sleep 2; '
                      f'else {WORKER} 1 cpp overlap && exit; fi; done; exit 1')
            late = f'[ "$RANK" != 2 ] || until [ -e {folder}/killed ]; do sleep 0.05; done; {script}'
            code, text = self.launched("sh", "-c", late, flags=["--num_processes", "3"])
        self.made(text, 1, 3)
        self.assertEqual(code, 0, text)

    def test_a_rank_that_alone_runs_a_second_program_says_so(self):
        script = f'{WORKER} 1 cpp overlap; [ "$RANK" = 1 ] && exec env ACC_INIT_TIMEOUT=5 {WORKER} 1 cpp overlap; exec sleep 100'
        code, text = self.launched("sh", "-c", script, flags=["--num_processes", "3"])
        self.assertEqual(code, 1, text)
        self.assertRegex(text, r"ranks 0,2 of 3 have not joined after 5 s; joined: 1 \(host .*\); this is process 2 of rank 1 that forms groups in this attempt, "
                               "and waits for as many of the others")

    def test_two_programs_of_a_rank_at_once_are_refused(self):
        """The first one waits for rank 1."""
        script = f'if [ "$RANK" = 0 ]; then {WORKER} 1 cpp overlap & {WORKER} 1 cpp overlap & wait -n; code=$?; kill $(jobs -p); exit $code; fi; exec sleep 60'
        code, text = self.launched("bash", "-c", script, flags=["--num_processes", "2"])
        self.assertEqual(code, 1, text)
        self.assertRegex(text, r"two processes are one rank: 0 \(host .*, pid \d+\) and 0 \(host .*, pid \d+\)")

    @unittest.skipIf(SANITIZED, "Python loads the library, and a sanitizer wants its own first")
    def test_by_hand_while_rank_0s_first_program_still_ends(self):
        """Its store is still there, and isn't the one that its next program serves.

        Rank 0 plays a program that ends slowly: 2 s after its group, while the others begin their next program."""
        port = free_port()
        slow_end = ("import ctypes, os, sys, time; acc = ctypes.CDLL(sys.argv[1]); comm = ctypes.c_void_p(); done = acc.acc_init(None, ctypes.byref(comm)); "
                  "acc.acc_finalize(comm); time.sleep(2 * (os.environ['RANK'] == '0')); sys.exit(done)")
        script = 'library=$1; shift; "$@" "$library" && exec "$@" "$library"'
        library = os.path.join(BIN, "..", "lib", "libacc.so")
        ranks = [by_hand(r, 3, port, "sh", "-ec", script, "sh", library, sys.executable, "-c", slow_end) for r in range(3)]
        texts = self.outputs(ranks)
        self.assertEqual([rank.returncode for rank in ranks], [0, 0, 0], texts)


class TwoJobs(GroupsTest):
    """Their ranks start in the order that made them one job."""

    def torchruns_variables(self, port, job):
        return dict(GROUP_RANK=0, GROUP_WORLD_SIZE=1, TORCHELASTIC_RUN_ID="none", TORCHELASTIC_RESTART_COUNT=0, TORCHELASTIC_USE_AGENT_STORE="True", JOB=job)

    def test_of_torchrun_with_neighbouring_ports(self):
        port = free_port()
        processes = []
        for job, rank, offset in (("B", 0, 0), ("A", 0, 1), ("A", 1, 1), ("B", 1, 0)):
            processes.append(by_hand(rank, 2, port + offset, WORKER, "1", "c", "overlap", **self.torchruns_variables(port + offset, job)))
            if rank == 0:  # the order of arrival is what is tried
                until(lambda: f"@acc-store/{os.geteuid()}/torchrun/none/0 at port {port + offset} " in read("/proc/net/unix"), f"the store of job {job}")
        self.made("".join(self.outputs(processes)), 1, 4)

    @unittest.skipUnless(TORCH, "no Python here has torch (Debian: python3-torch)")
    def test_real_torchruns_at_once(self):
        for _ in range(2):
            port = free_port()
            jobs = [start([*TORCHRUN, "--nproc_per_node", "2", "--master_port", str(port + i), "--no_python", WORKER, "2", "both", "overlap"], JOB=f"j{i}")
                    for i in range(2)]
            for job, text in zip(jobs, self.outputs(jobs)):
                self.made(text, 2, 2)
                self.assertEqual(job.returncode, 0, text)

    def test_by_hand_with_one_port(self):
        """A's rank 0 is there: B's is refused, not timed out, and names it."""
        port = free_port()
        a0 = by_hand(0, 2, port, WORKER, "1", "cpp", "overlap", JOB="A")
        until(lambda: re.search(rf":{port:04X} 0+:0000 0A ", read("/proc/net/tcp")), "the store of job A")
        b0 = by_hand(0, 2, port, WORKER, "1", "cpp", "overlap", JOB="B")
        self.assertRegex(self.outputs([b0])[0], rf"two processes are rank 0 of this job: this one, pid {b0.pid} .*, and pid {a0.pid} on host .*MASTER_PORT of its own")
        a1 = by_hand(1, 2, port, WORKER, "1", "cpp", "overlap", JOB="A")
        self.made("".join(self.outputs([a0, a1])), 1, 2)

    def test_a_world_size_that_differs_is_told_on_both(self):
        port = free_port()
        ranks = [by_hand(0, 2, port, WORKER, "1", "cpp", "overlap"), by_hand(1, 3, port, WORKER, "1", "cpp", "overlap")]
        for text in self.outputs(ranks):
            self.assertRegex(text, r"rank 1 \(host .*\) has a world size of 3, rank 0 \(host .*\) of 2")


class Hosts(GroupsTest):
    def test_a_master_address_that_is_not_rank_0s_is_named(self):
        rank_0 = by_hand(0, 2, free_port(), WORKER, "1", "cpp", "overlap", address="192.0.2.7", ACC_INIT_TIMEOUT=5)
        self.assertRegex(self.outputs([rank_0])[0], r"rank 1 of 2 has not joined.*MASTER_ADDR=192\.0\.2\.7 is no address of .*, the host of rank 0")

    @needs_hosts
    def test_cpu_flag_of_the_launcher_on_a_machine_with_gpus(self):
        """With a driver's device and the fake libraries a job goes to nccl, unless --cpu was said."""
        with tempfile.TemporaryDirectory() as dev:
            script = (f"mount -t tmpfs dev {dev} && cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/ptmx {dev}/ && ln -s /proc/self/fd {dev}/fd && "
                      f"mkdir {dev}/shm {dev}/pts && touch {dev}/nvidiactl && mount --bind {dev} /dev && exec \"$@\"")
            for flags, backend in (([], "nccl"), (["--cpu"], "cpu")):
                with self.subTest(flags=flags):
                    job = start(["unshare", "-m", "sh", "-c", script, "sh", os.path.join(BIN, "acc-test"), *flags, "--num_processes", "2"], ACC_NCCL_LIBRARY=os.path.join(BIN, "libfake_nccl.so"),
                                ACC_CUDART_LIBRARY=os.path.join(BIN, "libfake_cudart.so"), FAKE_CUDA="devices=2")
                    self.assertIn(f"backend {backend}", self.outputs([job])[0])

    @needs_hosts
    def test_ipv6_switched_off_by_sysctl(self):
        script = ("ip link set lo up; ip addr add 10.9.8.7/32 dev lo; sysctl -q net.ipv6.conf.all.disable_ipv6=1; export MASTER_ADDR=10.9.8.7 MASTER_PORT=29760 WORLD_SIZE=2;"
                  f"RANK=0 {WORKER} 2 both overlap & RANK=1 {WORKER} 2 both overlap; wait")
        self.made(self.outputs([start(["unshare", "-n", "sh", "-c", script], JOB="a")])[0], 2, 2)


class FlightRecords(GroupsTest):
    def looping(self, job, ranks):
        """The pid of each rank, once all have a group; the launcher's own messages stand between their lines."""
        pids, lines = {}, []
        while len(pids) < ranks:
            lines.append(job.stdout.readline())
            self.assertTrue(lines[-1], "the job ended: " + "".join(lines))
            if found := re.search(rf"rank (\d)/{ranks} .*loops, pid (\d+)", lines[-1]):
                pids[int(found[1])] = int(found[2])
        return pids

    def loop(self, records, **variables):
        job = start([os.path.join(BIN, "acc-launch"), "--num_processes", "4", "--no_python", os.path.join(BIN, "collectives_worker"), "loop"], ACC_FLIGHT_DIR=records, **variables)
        self.addCleanup(end, job)
        return job, self.looping(job, 4)

    def records_of(self, folder, pids):
        """Why each rank wrote, after a look at its calls."""
        self.assertEqual(sorted(os.listdir(folder)), sorted(f"flight-world-rank{rank}-{pid}.jsonl" for rank, pid in pids.items()))
        for name in os.listdir(folder):
            with open(os.path.join(folder, name)) as file:
                why, *calls = map(json.loads, file)
            self.assertIn(calls[-1]["state"], ("running", "failed", "done"))
            yield why["why"]

    def test_all_survivors_of_a_killed_rank_under_acc_launch_write_theirs(self):
        """Each writes when it sees the death, or when acc-launch asks it to end, whichever comes first."""
        for run in range(8):
            with self.subTest(run=run), tempfile.TemporaryDirectory() as folder:
                records = os.path.join(folder, "flight", "records")
                job, pids = self.loop(records)
                os.kill(pids[2], signal.SIGKILL)
                text = self.outputs([job])[0]
                self.assertEqual(job.returncode, 137, text)
                for why in self.records_of(records, {rank: pid for rank, pid in pids.items() if rank != 2}):
                    self.assertRegex(why, r"SIGTERM|rank 2 \(host .*\) was (lost: )?killed by SIGKILL")

    def test_looking_at_the_stacks_of_a_program_without_heartbeats_asked_for_no_record(self):
        with tempfile.TemporaryDirectory() as runtime, tempfile.TemporaryDirectory() as folder:
            job, pids = self.loop(folder, XDG_RUNTIME_DIR=runtime)
            jobs = os.path.join(runtime, "acc/jobs")
            found = until(lambda: [name for name in os.listdir(jobs) if not name.startswith(".")], "the control socket")
            text = ask_at(os.path.join(jobs, found[0]), {"do": "stacks"}, timeout=20)["text"]
            for pid in pids.values():
                self.assertIn(f"flight record: {folder}/flight-*-{pid}.jsonl", text)
            until(lambda: len(os.listdir(folder)) == 4, lambda: os.listdir(folder))
            self.assertIsNone(job.poll())

    def test_all_ranks_of_a_job_that_is_asked_to_end_write_theirs(self):
        """Where no rank has failed, SIGTERM is all that they see; or another's end by it."""
        with tempfile.TemporaryDirectory() as folder:
            job, pids = self.loop(folder)
            job.terminate()
            text = self.outputs([job])[0]
            self.assertEqual(job.returncode, 143, text)
            for why in self.records_of(folder, pids):
                self.assertRegex(why, r"SIGTERM|rank \d \(host .*\) was (lost: )?killed by SIGTERM")


if __name__ == "__main__":
    main()
