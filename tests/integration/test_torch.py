"""Real PyTorch DDP as worker: trains, survives a SIGKILL by a restart, and is reported when none is left."""
import os, subprocess, unittest

from harness import JobTest, main

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ddp_worker.py")


def python_with_torch():
    """The first of them that has torch. It is looked for, not imported: that takes a second of a core, for each of the files that need it."""
    for python in filter(None, (os.environ.get("TORCH_PYTHON"), "/usr/bin/python3", "python3")):
        try:
            if subprocess.run([python, "-c", "import importlib.util, sys; sys.exit(not importlib.util.find_spec('torch'))"], capture_output=True, timeout=120).returncode == 0:
                return python
        except OSError:
            continue
    return None


PYTHON = python_with_torch()


@unittest.skipUnless(PYTHON, "no Python here has torch (Debian: python3-torch)")
class Ddp(JobTest):
    def run_ddp(self, workers, flags="", kill="", code=0):
        job = self.job(f"--num_processes {workers} {flags}", "", program=[SCRIPT], env={"PYTHON_EXEC": PYTHON, "DDP_KILL": kill})
        self.assertEqual(job.wait(120), code, job.stderr)
        self.assert_nothing_left(job)
        return job

    def test_two_workers_train(self):
        self.assertIn("trained world=2 attempt=0", self.run_ddp(2).stdout)

    def test_a_killed_rank_is_survived_by_a_restart(self):
        job = self.run_ddp(3, "--max_restarts 1", kill="1@0")
        self.assertIn("trained world=3 attempt=1", job.stdout)
        self.assertIn("rank 1", job.stderr)
        self.assertIn("SIGKILL", job.stderr)

    def test_without_a_restart_left_the_first_failure_is_named(self):
        job = self.run_ddp(3, "--max_restarts 1", kill="2@always", code=137)
        self.assertRegex(job.stderr, r"job failed: rank 2 was killed by SIGKILL \(9\)")
        self.assertIn("restarted 1 of 1 time", job.stderr)


if __name__ == "__main__":
    main()
