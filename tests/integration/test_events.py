"""--events FILE: what happened, as lines of JSON."""
import json, os, tempfile, unittest

from harness import JobTest, free_port, is_root, main, read, until, write


def events_of(path):
    return [json.loads(line) for line in read(path).splitlines()]


class Events(JobTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="acc-events-")
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "events.jsonl")

    def test_a_job_that_restarts_tells_its_course(self):
        self.finished(f"--num_processes 2 --max_restarts 1 --events {self.path}", "rank=1 attempt=0 err=the_end exit=7")
        events = events_of(self.path)
        self.assertEqual([event["seq"] for event in events], list(range(len(events))))
        words = [event["event"] for event in events]
        self.assertEqual(words[0], "job_started")
        self.assertEqual(words[-1], "job_ended")
        self.assertEqual(words.count("round_started"), 2)
        self.assertEqual(words.count("worker_started"), 4)
        self.assertEqual(words.count("worker_ended"), 4)
        failure = events[words.index("failure")]
        self.assertEqual((failure["rank"], failure["round"], failure["cause"]), (1, 0, "exited with code 7"))
        self.assertEqual(failure["last_lines"], ["the_end"])
        restart = events[words.index("restart")]
        self.assertEqual((restart["restarts"], restart["max_restarts"]), (1, 1))
        self.assertEqual((events[-1]["verdict"], events[-1]["exit_code"], events[-1]["restarts"]), ("succeeded", 0, 1))
        self.assertEqual({event["job"] for event in events}, {events[0]["job"]})

    def test_the_first_event_has_the_nodes_name_while_its_health_is_checked(self):
        self.finished(f"--nnodes 1:2 --nproc_per_node 1 --rdzv_backend tcp --rdzv_endpoint 127.0.0.1:{free_port()} --rdzv_id named "
                      f"--join_timeout 20 --last_call 1s --health --events {self.path}", "exit=0")
        events = events_of(self.path)
        self.assertEqual(events[0]["event"], "job_started")
        self.assertTrue(events[0]["node"])
        self.assertEqual(len({event["node"] for event in events}), 1)

    def test_the_events_of_a_job_that_is_started_again_and_again_keep_their_size(self):
        for _ in range(8):
            self.finished(f"--num_processes 1 --events {self.path} --events_size 2K", "exit=0")
        texts = [read(self.path + ".1"), read(self.path)]
        for text in texts:
            self.assertLessEqual(len(text), 2048)
            self.assertEqual(json.loads(text.splitlines()[0])["event"], "file_continued")
        begins = [json.loads(text.splitlines()[0])["begins_at"] for text in texts]
        self.assertEqual(begins[1], begins[0] + len(texts[0]))
        rows = [json.loads(line) for text in texts for line in text.splitlines()[1:]]
        for one, other in zip(rows, rows[1:]):
            self.assertEqual(other["seq"], one["seq"] + 1 if other["job"] == one["job"] else 0)
        self.assertEqual(rows[-1]["event"], "job_ended")
        self.assertEqual(sorted(os.listdir(os.path.dirname(self.path))), ["events.jsonl", "events.jsonl.1"])

    def test_a_file_that_was_removed_took_all_later_events_with_it(self):
        job = self.job(f"--num_processes 1 --events {self.path} --events_size 64K", "mark=up hold")
        job.wait_events("up", 1)
        until(lambda: "worker_started" in read(self.path), "the first events")
        size = os.path.getsize(self.path)
        os.remove(self.path)
        job.process.terminate()
        self.assertEqual(job.wait(10), 143)
        events = events_of(self.path)
        self.assertEqual((events[0]["event"], events[-1]["event"]), ("file_continued", "job_ended"))
        self.assertGreaterEqual(events[0]["begins_at"], size)

    def moved(self, move, flags="", restarts=4):
        """Its events are moved away while an attempt runs; several more follow."""
        go = os.path.dirname(self.path) + ".go"
        job = self.job(f"--num_processes 1 --max_restarts {restarts} --restart_delay 0 --events {self.path} {flags} --no_python", "",
                       program=["sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done; exit 3"])
        self.addCleanup(os.remove, go)
        until(lambda: os.path.exists(self.path) and "worker_started" in read(self.path), "the first events")
        move()
        write(go, "")
        self.assertEqual(job.wait(60), 3, job.stderr)
        return job

    def test_a_file_that_was_renamed_took_later_events_with_it_and_from_its_limit_on_all_were_lost(self):
        old = self.path + ".old"
        job = self.moved(lambda: os.rename(self.path, old), "--events_size 2K")
        self.assertNotIn("events in", job.stderr)
        self.assertEqual(events_of(old)[-1]["event"], "worker_started")
        events = events_of(self.path + ".1") + events_of(self.path)
        self.assertEqual((events[0]["event"], events[-1]["event"]), ("file_continued", "job_ended"))
        self.assertGreaterEqual(events[0]["begins_at"], os.path.getsize(old))

    def test_a_file_that_another_one_took_the_place_of_took_later_events_with_it(self):
        def move():
            os.rename(self.path, self.path + ".old")
            write(self.path, '{"event": "of another job"}\n')
        self.moved(move)
        self.assertEqual(events_of(self.path)[0]["event"], "of another job")
        self.assertEqual(events_of(self.path)[-1]["event"], "job_ended")
        self.assertEqual(events_of(self.path + ".old")[-1]["event"], "worker_started")

    def test_in_a_folder_that_was_renamed_it_goes_on_of_any_size(self):
        folder = os.path.dirname(self.path)
        self.path = os.path.join(folder, "sub", "events.jsonl")
        os.mkdir(folder + "/sub")
        job = self.moved(lambda: os.rename(folder + "/sub", folder + "/other"), "--events_size 2K")
        self.assertNotIn("events in", job.stderr)
        self.assertEqual(events_of(folder + "/other/events.jsonl")[-1]["event"], "job_ended")

    def test_two_jobs_share_a_file(self):
        for _ in range(2):
            self.finished(f"--num_processes 1 --events {self.path}", "exit=0")
        events = events_of(self.path)
        self.assertEqual([event["event"] for event in events].count("job_ended"), 2)
        self.assertEqual(len({event["job"] for event in events}), 2)

    def test_a_full_disk_does_not_hold_up_the_job(self):
        report = self.path + ".report"
        job = self.finished(f"--num_processes 2 --events /dev/full --report {report}", "exit=0")
        self.assertIn("events in /dev/full: No space left on device", job.stderr)
        losses = json.loads(read(report))["losses"]
        self.assertEqual([loss["where"] for loss in losses], ["events in /dev/full"])
        self.assertGreater(losses[0]["lines"], 4)

    def test_a_pipe_that_nobody_reads_does_not_hold_up_the_job(self):
        os.mkfifo(self.path)
        self.finished(f"--num_processes 2 --events {self.path}", "exit=0")

    def test_a_folder_that_is_missing_is_said_before_the_start(self):
        job = self.finished(f"--num_processes 1 --events {self.path}/none/events", "mark=up exit=0", code=73)
        self.assertIn("--events: can't write to", job.stderr)
        self.assertFalse(job.events("up"))

    @unittest.skipUnless(is_root(), "plants a link of another user's")
    def test_roots_events_and_report_were_written_to_a_device_behind_another_users_link(self):
        shared = os.path.dirname(self.path)
        os.symlink("/dev/null", self.path)
        os.lchown(self.path, 1001, 1001)
        os.chmod(shared, 0o1777)
        for flag in ("--events", "--report"):
            job = self.finished(f"--num_processes 1 {flag} {self.path}", "mark=up exit=0", code=73)
            self.assertIn(f"{flag}: can't write to '{self.path}': Permission denied", job.stderr)
            self.assertFalse(job.events("up"))

    def test_a_job_ended_by_a_signal_says_so(self):
        job = self.job(f"--num_processes 2 --events {self.path}", "mark=up hold")
        job.wait_events("up", 2)
        job.process.terminate()
        job.wait()
        events = events_of(self.path)
        stopping = next(event for event in events if event["event"] == "stopping")
        self.assertEqual(stopping["signal"], "SIGTERM")
        self.assertTrue(all(event["stopped_by_us"] for event in events if event["event"] == "worker_ended"))
        self.assertEqual(events[-1]["verdict"], "stopped")


if __name__ == "__main__":
    main()
