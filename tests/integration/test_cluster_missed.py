"""acc-launch --hosts through daemons: a part of the job ends for good, and the others mustn't wait for it."""
import glob, json, os, signal

from harness import children_of, is_pending, main, read, state_of, until, write
from hosts import needs_hosts
from test_cluster_launch import OnDaemons


@needs_hosts
class Missed(OnDaemons):
    """A part that has ended for good: nothing starts it again, and the others waited for it for ten minutes."""
    LONG = "--join_timeout 600s --max_restarts 3"

    def test_after_a_killed_acc_launch_the_other_host_waited_for_ten_minutes(self):
        self.begin("a b")
        for killed in "ba":
            job = self.launch("mark=up hold", "a:1,b:1", self.LONG)
            job.wait_events("up", 2, 20)
            os.kill(next(one["pid"] for one in self.jobs(killed) if one["state"] == "running"), signal.SIGKILL)
            self.assertIn(job.wait(40), (69, 70), job.stderr)
            self.nothing_left(job)

    def test_after_the_first_part_was_killed_no_line_said_why_the_job_had_ended(self):
        self.begin("a b")
        job = self.launch("mark=up hold", "a:1,b:1", f"{self.LONG} --dead_after 900ms")
        job.wait_events("up", 2, 20)
        guardian = next(one["pid"] for one in self.jobs("a") if one["state"] == "running")
        for signo in (signal.SIGSTOP, signal.SIGKILL):  # none of them sees the other's end
            for pid in (*children_of(guardian), guardian):
                os.kill(pid, signo)
        self.assertEqual(job.wait(60), 69, job.stderr)
        self.assertRegex(job.stderr, r"acc-launch: .*of 2 nodes the rest is no majority.*\(exit code 69\)")
        self.nothing_left(job)

    def test_after_a_killed_acc_launch_a_detached_job_waited_for_ten_minutes(self):
        self.begin("a b")
        for killed, other in ("ba", "ab"):
            job = self.launch("mark=up hold", "a:1,b:1", f"--detach {self.LONG}")
            self.assertEqual(job.wait(), 0, job.stderr)
            until(lambda: len(job.events("up")) == 2, "the workers", 20)
            os.kill(next(one["pid"] for one in self.jobs(killed) if one["state"] == "running"), signal.SIGKILL)
            self.nothing_left(job, 30)
            self.assertEqual({one["state"] for one in self.jobs(other)}, {"failed"})

    def test_after_a_killed_agent_a_detached_job_waited_for_ten_minutes(self):
        """Its connection is closed, and it doesn't come back within --dead_after + --lease."""
        self.begin()
        for hosts, killed, others in (("a:1,b:1", "b", "a"), ("a:1,b:1,c:1", "a", "bc")):  # a: it coordinates
            before = {one["id"] for name in others for one in self.jobs(name)}
            job = self.launch("mark=up hold", hosts, f"--detach {self.LONG} --dead_after 3s --lease 6s")
            self.assertEqual(job.wait(), 0, job.stderr)
            until(lambda: len(job.events("up")) == hosts.count(":"), "the workers", 20)
            part = next(one for one in self.jobs(killed) if one["state"] == "running")
            os.kill(children_of(part["pid"])[0], signal.SIGKILL)
            self.nothing_left(job, 60)
            ended = [one for name in others for one in self.jobs(name) if one["id"] not in before]
            self.assertEqual([(one["state"], one["exit_code"]) for one in ended], [("failed", 69)] * len(others), ended)

    def test_after_a_cut_network_the_host_that_was_left_waited_for_ten_minutes(self):
        self.begin("a b")
        job = self.launch("mark=up hold", "a:1,b:1", self.LONG)
        job.wait_events("up", 2, 20)
        self.hosts.partition("b")
        until(lambda: self.jobs("b")[0]["state"] == "failed", "the end of the part that is cut off", 60)
        self.hosts.heal()
        self.ends(job, 69, 60)

    def test_a_healthy_job_was_stopped_when_the_contact_with_a_host_had_been_lost(self):
        """Rank 0 was done, and the other one was stopped seconds later."""
        self.begin("a b")
        job = self.launch("mark=up rank=0 after=4s exit=0 any after=14s mark=done exit=0", "a:1,b:1")
        job.wait_events("up", 2, 20)
        # The workers are there before the launcher has read that b's part was started.
        records = lambda: glob.glob(f"{job.folder}/.local/state/acc/launches/*.json")
        until(lambda: any(all(part["job"] for part in json.loads(read(path))["parts"]) for path in records()), "the record of both parts")
        bridge, = [pid for pid in children_of(job.pid) + children_of(job.agent or job.pid) if "bridge" in (words := read(f"/proc/{pid}/cmdline")) and "\0b\0" in words]
        os.kill(bridge, signal.SIGKILL)
        self.ends(job, 0, 60)
        self.assertEqual(len(job.events("done")), 1)
        self.assertIn("what b does is not known any longer", job.stderr)

    def test_a_report_that_cannot_be_written_left_the_other_host_waiting(self):
        self.begin("a b")
        for detach in ("", "--detach"):
            job = self.launch("mark=up hold", "a:1,b:1", f"{detach} --report /nonexist/x.json {self.LONG}")
            self.ends(job, 73, 40)
            self.assertEqual(job.stdout, "")
            self.assertIn("exit code 73", job.stderr)

    def test_an_unfit_host_left_the_other_one_waiting(self):
        self.begin("a b")
        check = self.folder + "/check"
        write(check, '#!/bin/sh\n[ "$(hostname)" != b ] || { echo "broken here"; exit 1; }\n', 0o755)
        for detach in ("", "--detach"):
            report = f"{self.folder}/report{detach}.json"
            job = self.launch("mark=up hold", "a:1,b:1", f"{detach} --health_check {check} --report {report} {self.LONG}")
            self.ends(job, 74, 40)
            self.assertEqual(job.stdout, "")
            if not detach:  # it said that the user had stopped the job
                told = json.loads(read(report))
                self.assertEqual((told["verdict"], told["exit_code"], told["stop_signal"]), ("unfit", 74, None))
                self.assertEqual(told["reason"], "b: its part has ended with exit code 74 (unfit), and nothing starts it again")
            until(lambda: self.nodes["b"].ask("GET", "/v1/node").json["drained"], "the drained node")  # a moment after the job's end
            self.ctl("undrain", "b")

    def test_an_elastic_job_goes_on_without_a_host_whose_acc_launch_was_killed(self):
        self.begin()
        job = self.launch("mark=up hold", flags=f"--nnodes 2:3 {self.LONG}")
        job.wait_events("up", 3, 20)
        os.kill(self.jobs("b")[0]["pid"], signal.SIGKILL)
        until(lambda: len(job.events("up")) == 5, "the second round", 30)
        job.process.send_signal(signal.SIGTERM)
        self.ends(job, 143)


@needs_hosts
class Unreachable(OnDaemons):
    """One of the hosts can't be reached any longer."""
    # Not lost before all keys are pressed, however long the machine stands still between them.
    PATIENT = "--grace 60s --dead_after 20s --lease 40s"

    def cut(self, words="ignore=INT ignore=TERM mark=up hold", flags=PATIENT):
        self.begin("a b")
        job = self.launch(words, "a:1,b:1", flags)
        job.wait_events("up", 2, 20)
        self.hosts.partition("b")
        return job

    def is_taken(self, guardian, agent):
        """Is a SIGINT pending nowhere? A guardian that has read one passes it on before it sleeps again."""
        try:
            return not is_pending(guardian, signal.SIGINT) and state_of(guardian) == "S" and not is_pending(agent, signal.SIGINT)
        except OSError:  # the last one has ended them
            return True

    def pressed(self, presses):
        job = self.cut()
        agent = job.agent
        # Two that are pending count as one: each is answered, or at least taken, before the next.
        for answer in ("got SIGINT", "Ctrl-C again to kill", *[""] * (presses - 2)):
            job.process.send_signal(signal.SIGINT)
            job.wait_stderr(answer)
            until(lambda: job.process.poll() is not None or self.is_taken(job.pid, agent), "the end of the Ctrl-C")
        self.assertEqual(job.wait(10), 130, job.stderr)
        self.assertRegex(job.stderr, "acc-launch: b (is unreachable|does not report the end of its part); its part may go on: 'acc-ctl --node b stop ")
        self.hosts.heal()
        self.nothing_left(job, 60)

    def test_three_ctrl_c_did_not_end_the_command_while_a_host_was_unreachable(self):
        self.pressed(3)

    def test_more_than_three_ctrl_c_ended_it_with_70(self):
        self.pressed(5)

    def test_one_ctrl_c_waited_a_minute_for_an_unreachable_host_and_nothing_was_said(self):
        job = self.cut("mark=up hold", "--grace 2s --max_restarts 3 --join_timeout 60s")
        until(lambda: "b: no answer for" in job.stderr, "the line", 40)
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(20), 130, job.stderr)
        self.assertRegex(job.stderr, r"acc-launch: warning: b: no answer for 1\d s, given up after 1 min")
        self.assertIn("b is unreachable; its part may go on: 'acc-ctl --node b stop ", job.stderr)
        self.hosts.heal()
        self.nothing_left(job, 60)

    def test_a_job_that_had_succeeded_waited_a_minute_for_a_host_out_of_contact(self):
        """Out of contact with this machine alone: the job goes on there, and succeeds."""
        self.begin()
        job = self.launch("mark=up after=4s mark=done exit=0", "c:1,b:1")
        job.wait_events("up", 2, 20)
        self.hosts.partition_between("a", "b")
        self.assertEqual(job.wait(40), 0, job.stderr)
        self.assertEqual(len(job.events("done")), 2)
        self.assertIn("acc-launch: b is unreachable, and the job has ended: its part has, too, or ends by itself", job.stderr)
        self.assertNotIn("kills the workers", job.stderr)
        self.hosts.heal()
        self.nothing_left(job)

    def test_ctrl_z_gave_a_prompt_and_the_job_went_on(self):
        self.begin("a b")
        job = self.launch("mark=up hold", "a:1,b:1")
        job.wait_events("up", 2, 20)
        job.process.send_signal(signal.SIGTSTP)
        job.wait_stderr("can't be suspended")  # of two that are pending, the kernel would give out SIGTERM first
        job.process.send_signal(signal.SIGTERM)  # a stopped process would not end
        self.ends(job, 143)


if __name__ == "__main__":
    main()
