"""Thousands of processes: left over, started, refused. The agent answers all the while."""
import os, resource, signal, sys, time

from harness import NOBODY, SANITIZED, SLACK, JobTest, is_pending, is_root, main, read, state_of, until, without_cgroup, write

# Left by each of two workers. On a quiet machine 4,000 are gone within a second; what was quadratic took a minute for 2,000. The bound is
# that of a machine that does much else.
COUNT = int(os.environ.get("ACC_MANY", "200" if SANITIZED else "1000"))
BOUND = 15.0


def limit_descriptors(count):
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


class LeftOvers(JobTest):
    def left(self, words, flags="", **options):
        """A job of two workers that left 2 x COUNT processes when they ended, at the moment of their end."""
        job = self.job(f"--num_processes 2 {flags}", words, **options)
        job.wait_events("left", 2, 60)
        return job

    def check_gone(self, job, since, within):
        until(lambda: not job.alive(), "the end of all that was left", 30)
        seconds = time.monotonic() - since
        self.assertLess(seconds, within * SLACK)
        return seconds

    def test_thousands_of_left_overs_are_gone_within_a_second(self):
        job = self.left(f"leave={COUNT} mark=left exit=0")
        t = time.monotonic()
        self.assertEqual(job.wait(30), 0, job.stderr)
        self.assertLess(time.monotonic() - t, BOUND * SLACK)
        self.assert_nothing_left(job)
        self.assertRegex(job.stderr, rf"ending {2 * COUNT} left-over processes: .*…")

    def test_and_without_a_cgroup(self):
        wrap = without_cgroup() if is_root() else []
        if not wrap:
            self.skipTest("needs root and a cgroup v2 to hide")
        job = self.left(f"leave={COUNT} mark=left exit=0", wrap=wrap)
        t = time.monotonic()
        self.assertEqual(job.wait(30), 0, job.stderr)
        self.assertLess(time.monotonic() - t, BOUND * SLACK)
        self.assert_nothing_left(job)

    def test_ctrl_c_is_obeyed_while_thousands_are_ended(self):
        for _ in range(3):
            job = self.left(f"leave_stubborn={COUNT} mark=left exit=0", "--grace 60s")
            until(lambda: "left-over" in job.stderr, "the news of left-overs")
            t = time.monotonic()
            for answer in ("got SIGINT", "hurrying", "killing"):
                job.process.send_signal(signal.SIGINT)
                job.wait_stderr(answer)  # or the kernel makes one of two
            self.assertEqual(job.wait(30), 0, job.stderr)  # all workers had succeeded
            self.assertLess(time.monotonic() - t, BOUND * SLACK)
            self.assert_nothing_left(job)
            if "killing at once" in job.stderr:
                return
            self.assertIn("did not end within 2 s, killing", job.stderr)  # a busy machine was later with the third one
        self.fail(job.stderr)

    def after_sigkill_of(self, who, **options):
        job = self.left(f"leave_stubborn={COUNT} mark=left exit=0", "--grace 60s", **options)
        until(lambda: "left-over" in job.stderr, "the news of left-overs")
        os.kill(job.pid if who == "guardian" else job.agent, signal.SIGKILL)
        self.check_gone(job, time.monotonic(), BOUND)
        job.wait(5)

    def test_gone_after_sigkill_of_acc_launch(self):
        self.after_sigkill_of("guardian")
        self.after_sigkill_of("guardian", user=NOBODY if is_root() else None)

    def test_gone_after_sigkill_of_the_agent(self):
        self.after_sigkill_of("agent")
        self.after_sigkill_of("agent", user=NOBODY if is_root() else None)


class Starts(JobTest):
    def test_a_thousand_workers_start_and_end(self):
        count = 100 if SANITIZED else 500
        job = self.finished(f"--num_processes {count}", "mark=up exit=0", deadline=60, preexec=lambda: resource.setrlimit(
            resource.RLIMIT_NOFILE, (1024, 20000)))
        self.assertEqual(len(job.events("up")), count)

    def test_ten_thousand_are_refused_at_once_where_descriptors_lack(self):
        taken = []
        while len(taken) < 5 and not any(took < 2 * SLACK for took in taken):  # the quickest of five, on a machine that does much else
            job = self.job("--num_processes 10000", "mark=up exit=0", preexec=limit_descriptors(2000))
            self.assertEqual(job.wait(20), 71, job.stderr)
            self.assertRegex(job.stderr, r"cannot start 10000 workers: that takes 300\d\d descriptors, and the limit is 2000: raise it")
            self.assertEqual(job.events("up"), [])
            taken.append(job.seconds)
        self.assertLess(min(taken), 2 * SLACK, taken)

    def test_a_start_can_be_stopped_before_any_program_runs(self):
        count = 300 if SANITIZED else 2000
        job = self.job(f"--num_processes {count}", "mark=up hold", preexec=limit_descriptors(20000))
        until(lambda: job.agent and len(os.listdir(f"/proc/{job.agent}/fd")) > count // 4, "a start that is under way")
        # The start stands still until the signal is there: a busy machine may take as long for that as for the rest of the start.
        agent = job.agent
        os.kill(agent, signal.SIGSTOP)
        until(lambda: state_of(agent) == "T", "the stop")
        if job.events("up"):
            self.skipTest("this machine starts them faster than we look")
        job.process.terminate()
        until(lambda: is_pending(agent, signal.SIGTERM), "the signal from the guardian")
        t = time.monotonic()
        os.kill(agent, signal.SIGCONT)
        self.assertEqual(job.wait(20), 143, job.stderr)
        self.assertLess(time.monotonic() - t, BOUND * SLACK)
        self.assertEqual(job.events("up"), [])
        self.assert_nothing_left(job)

    def test_a_start_under_way_ends_with_acc_launch(self):
        count = 300 if SANITIZED else 2000
        for who in ("guardian", "agent"):
            job = self.job(f"--num_processes {count}", "mark=up hold", preexec=limit_descriptors(20000))
            until(lambda: job.agent and len(os.listdir(f"/proc/{job.agent}/fd")) > count // 4, "a start that is under way")
            os.kill(job.pid if who == "guardian" else job.agent, signal.SIGKILL)
            until(lambda: not job.all_alive(), f"the end of all after SIGKILL of the {who}", BOUND)
            job.wait(5)


HELPERS = """import multiprocessing as mp
if __name__ == "__main__":
    child = mp.get_context("spawn").Process(target=print, args=("from the child",))
    child.start()
    child.join()
"""


class Helpers(JobTest):
    def test_a_healthy_multiprocessing_script_leaves_nothing_to_tell(self):
        told = []
        for _ in range(4):
            job = self.job("--num_processes 2", "", program=[])
            script = os.path.join(job.folder, "spawns.py")
            write(script, HELPERS)
            job = self.finished("--num_processes 2 --report r.json", "", program=["--no_python", sys.executable, script])
            self.assertEqual(job.stdout.count("from the child"), 2)
            if "left-over" in job.stderr or self.report(job, "r.json")["left_over"]:
                told.append(job.stderr)
        self.assertLess(len(told), 2, told)  # a helper that a busy machine doesn't let exit in time is one


if __name__ == "__main__":
    main()
