#!/usr/bin/env python3
"""The judge of the daemons' chaos finds what it must, and nothing else."""
import os, sys, unittest

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")]
import ledger
from history import Life
from ledger import Task


def job(**more):
    return {"id": "t-1", "state": "succeeded", "exit_code": 0, "starts": 1, "reason": "", **more}


def life(pid, **more):
    return Life(node="a", round=pid, rank=0, world=1, local=0, node_rank=0, nodes=1, pid=pid, restarts=0, master="-", port="-", start=pid, last=pid + 1, **more)


def task(**more):
    return Task(**{"token": "any=t1x", "hosts": ("a",), "id": "t-1", "accepted": True, **more})


class Presence(unittest.TestCase):
    def test_an_accepted_job_that_is_gone_is_lost(self):
        self.assertIn("lost", ledger.presence(task(), [])[0])
        self.assertEqual(ledger.presence(task(removed=True), []), [])
        self.assertEqual(ledger.presence(task(accepted=None, id=None), []), [])

    def test_two_jobs_of_one_submission_are_doubled(self):
        self.assertIn("doubled", ledger.presence(task(), [job(), job(id="t-2")])[0])

    def test_a_refused_submission_leaves_nothing(self):
        self.assertIn("doubled", ledger.presence(task(accepted=False), [job()])[0])
        self.assertIn("refused", ledger.course(task(accepted=False), [life(1)])[0])

    def test_a_restart_of_an_ended_job_begins_its_rule_anew(self):
        lives = [life(pid) for pid in range(6)]
        self.assertEqual(ledger.course(task(rule="on-failure", may_start_again=2, restarts=1), lives), [])
        self.assertIn("doubled", ledger.course(task(rule="on-failure", may_start_again=2), lives)[0])

    def test_a_removed_job_is_gone(self):
        self.assertIn("removed", ledger.presence(task(removed=True), [job()])[0])


class Course(unittest.TestCase):
    def test_two_workers_at_once_are_found_by_the_lock(self):
        self.assertIn("two at once", ledger.course(task(rule="always"), [life(1), life(2, overlaps=(1,))])[0])

    def test_more_starts_than_the_rule_allows_are_found(self):
        two = [life(1), life(2)]
        self.assertIn("doubled", ledger.course(task(), two)[0])
        for allowed in (task(rule="on-failure", may_start_again=1), task(max_restarts=1), task(restarts=1), task(rule="always")):
            self.assertEqual(ledger.course(allowed, two), [])


class Outcome(unittest.TestCase):
    def test_a_job_that_nothing_happened_to_has_its_own_exit_code(self):
        self.assertEqual(ledger.outcome(task(), job()), [])
        self.assertIn("wrong end", ledger.outcome(task(planned=3), job())[0])
        self.assertIn("wrong end", ledger.outcome(task(), job(starts=2))[0])
        self.assertEqual(ledger.outcome(task(planned=3, rule="on-failure", may_start_again=2), job(state="failed", exit_code=3, starts=3)), [])

    def test_a_job_in_trouble_may_have_failed(self):
        self.assertEqual(ledger.outcome(task(trouble=["guardian killed"]), job(state="failed", exit_code=70)), [])

    def test_a_stop_that_was_accepted_ends_in_stopped(self):
        self.assertIn("wrong end", ledger.outcome(task(planned=None, stops=1, stopped=True), job())[0])
        self.assertEqual(ledger.outcome(task(planned=None, stops=1, stopped=True), job(state="stopped", exit_code=143)), [])
        self.assertIn("nobody", ledger.outcome(task(trouble=["x"]), job(state="stopped"))[0])

    def test_a_job_that_does_not_end_is_unkillable(self):
        self.assertIn("unkillable", ledger.outcome(task(planned=None, stops=1), job(state="stopping"))[0])


class Launches(unittest.TestCase):
    def test_the_commands_exit_code_is_the_jobs(self):
        self.assertEqual(ledger.launch_end(task(planned=3), 3), [])
        self.assertIn("wrong end", ledger.launch_end(task(planned=3), 70)[0])
        self.assertEqual(ledger.launch_end(task(planned=3, trouble=["partition"]), 70), [])
        self.assertEqual(ledger.launch_end(task(planned=3, stops=1), 143), [])
        self.assertIn("wrong end", ledger.launch_end(task(planned=3, stops=1), 70)[0])
        self.assertEqual(ledger.launch_end(task(planned=3, stops=4), 70), [])


if __name__ == "__main__":
    unittest.main()
