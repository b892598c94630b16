"""MPI programs as workers: MPICH's are wired up by the agent, Open MPI's are warned about."""
import os, re, shutil, subprocess, tempfile, unittest

from harness import JobTest, free_port, main, own_token

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mpi")
MPICH, OPEN_MPI = shutil.which("mpicc.mpich"), shutil.which("mpicc.openmpi")
FOLDER = tempfile.TemporaryDirectory(prefix="acc-mpi-")


def built(compiler, name):
    program = os.path.join(FOLDER.name, f"{name}-{os.path.basename(compiler)}")
    if not os.path.exists(program):
        subprocess.run([compiler, "-O1", "-o", program, os.path.join(SOURCES, name + ".c")], check=True)
    os.chmod(FOLDER.name, 0o755)
    return program


@unittest.skipUnless(MPICH, "needs mpicc.mpich (package libmpich-dev)")
class Mpich(JobTest):
    def test_an_mpich_program_runs_unchanged(self):
        job = self.finished("--num_processes 4", "", program=[built(MPICH, "hello")], deadline=60)
        expected = [f"rank {r} of 4, {r} of 4 here, sum 6, from {(r + 3) % 4}" for r in range(4)]
        self.assertEqual(sorted(line for line in job.stdout.splitlines() if line), expected)

    def test_messages_of_all_sizes_arrive(self):
        job = self.finished("--num_processes 2", "", program=[built(MPICH, "latency")], deadline=60)
        self.assertEqual([line.split()[0] for line in job.stdout.splitlines()], [str(8**n) for n in range(1, 7)])

    def test_a_rank_that_fails_restarts_all_and_they_find_each_other_again(self):
        job = self.finished("--num_processes 3 --max_restarts 1", "", program=[built(MPICH, "hello")], env={"HELLO_EXIT": "7"}, deadline=60)
        ranks = re.findall(r"^rank (\d) of 3, \d of 3 here, sum 3", job.stdout, re.M)  # some wrote in the first attempt, too
        self.assertEqual((set(ranks), ranks.count("1")), ({"0", "1", "2"}, 1), job.stdout)
        self.assertIn("rank 1", job.stderr)
        self.assertIn("exited with code 7", job.stderr)

    def test_mpi_abort_ends_the_job_with_its_code(self):
        job = self.job("--num_processes 3", "", program=[built(MPICH, "hello")], env={"HELLO_ABORT": "5"})
        self.assertEqual(job.wait(60), 5, job.stderr)
        self.assertIn("rank 2 (pid", job.stderr)
        self.assertIn("exited with code 5", job.stderr)

    def test_a_shell_script_around_the_program_needs_the_flag(self):
        job = self.finished("--num_processes 2 --mpi pmi", "", program=["--no_python", "sh", "-c", built(MPICH, "hello")], deadline=60)
        self.assertIn("rank 1 of 2", job.stdout)

    def test_without_mpi_each_is_a_job_of_its_own(self):
        job = self.finished("--num_processes 2 --mpi none", "", program=[built(MPICH, "hello")], deadline=60)
        self.assertEqual(job.stdout.count("rank 0 of 1"), 2)

    def test_two_nodes_are_one_mpi_world(self):
        port = free_port()
        flags = f"--nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:{port} --rdzv_id mpi{os.getpid()}"
        jobs = [self.job(flags, "", program=[built(MPICH, "hello")], token=own_token("mpi")) for _ in range(2)]
        for job in jobs:
            self.assertEqual(job.wait(60), 0, job.stderr)
        lines = sorted(line for job in jobs for line in job.stdout.splitlines() if line)
        self.assertEqual([line.split(",")[0] for line in lines], [f"rank {r} of 4" for r in range(4)])
        self.assertEqual({line.split(", ")[2] for line in lines}, {"sum 6"})


@unittest.skipUnless(OPEN_MPI, "needs mpicc.openmpi (package libopenmpi-dev)")
class OpenMpi(JobTest):
    def test_an_open_mpi_program_is_warned_about(self):
        job = self.job("--num_processes 2", "", program=[built(OPEN_MPI, "hello")], env={"OMPI_ALLOW_RUN_AS_ROOT": "1"})
        job.wait(60)
        self.assertRegex(job.stderr, "linked with Open MPI.*rank 0 of 1.*mpirun.*MPICH")

    def test_and_not_with_mpi_none(self):
        job = self.job("--num_processes 2 --mpi none", "", program=[built(OPEN_MPI, "hello")])
        job.wait(60)
        self.assertNotIn("linked with Open MPI", job.stderr)  # it has words of its own where two of its processes begin at once


if __name__ == "__main__":
    main()
