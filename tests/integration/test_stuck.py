"""Processes that are stuck in the kernel. Alone: until such a process goes on, all that looks at command lines waits for it, as ps and the tests do."""
import os, shutil, signal, sys, tempfile, unittest

from harness import ACC, PATIENCE, SANITIZED, JobTest, is_root, main, until
from stuck_folder import UnansweredExec, UnwritableFile

UNKILLABLE = 72

# Rank 0 holds the lock of its memory for as long as its file's server is away: it maps something else over a page that is not yet written back.
WORKER = """import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
READ_WRITE, SHARED, FIXED_ANONYMOUS_PRIVATE = 3, 1, 0x32
if os.environ["RANK"] == "0":
    page = libc.mmap(None, 4096, READ_WRITE, SHARED, os.open(sys.argv[-1], os.O_RDWR), 0)
    ctypes.memset(page, 1, 1)
    libc.mmap(page, 4096, READ_WRITE, FIXED_ANONYMOUS_PRIVATE, -1, 0)
def save(*_):
    open(os.environ["SAVED"], "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
while True: time.sleep(0.1)  # signal.pause() would not see one that came just before it
"""


@unittest.skipUnless(is_root() and os.path.exists("/dev/fuse"), "needs a file system of our own")
class Stuck(JobTest):
    @unittest.skipIf(SANITIZED, "a sanitizer stops all threads at the end, and waits for the one that reads there")
    def test_a_rank_stuck_in_the_kernel_kept_the_others_from_their_signal(self):
        folder = tempfile.mkdtemp(prefix="acc-stuck-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        stuck = UnwritableFile(folder + "/away")
        saved = folder + "/saved"
        job = self.job("--num_processes 2 --grace 300ms --give_up 500ms", [stuck.place + "/file"], env={"SAVED": saved},
                       program=["--no_python", sys.executable, "-c", WORKER])
        try:
            self.assertTrue(stuck.asked.wait(10 * PATIENCE), "rank 0 isn't stuck")
            until(lambda: "up" in job.stdout, "rank 1")
            job.process.send_signal(signal.SIGTERM)
            until(lambda: os.path.exists(saved), "rank 1's checkpoint")
            until(lambda: job.process.poll() is not None, "the end of the job", 30)
        finally:
            stuck.give_up()
        self.assertEqual(job.wait(), UNKILLABLE, job.stderr)
        self.assertRegex(job.stderr, r"unkillable, state D")

    def test_a_program_whose_server_was_away_held_up_the_end_while_stacks_were_collected(self):
        job = self.job("--num_processes 1", "mark=up hold")
        job.wait_events("up", 1)
        away = UnansweredExec(ACC)
        self.addCleanup(away.give_up)
        job.process.send_signal(signal.SIGQUIT)
        self.assertTrue(away.asked.wait(10 * PATIENCE), "no stacks are collected")
        job.process.send_signal(signal.SIGTERM)  # a second signal doesn't wait for them
        self.assertEqual(job.wait(), 128 + signal.SIGTERM, job.stderr)
        self.assert_nothing_left(job)


if __name__ == "__main__":
    main()
