"""acc-test as a user types it: all is well, something is wrong, and what it says then."""
import json, os, re, subprocess, tempfile, unittest

from harness import BIN, SLACK, main

PLAIN = ["--cpu", "--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no"]


def acc_test(*words, ranks=2, env=None, timeout=60):
    return subprocess.run([os.path.join(BIN, "acc-test"), *PLAIN, f"--num_processes={ranks}", *words], capture_output=True,
                          text=True, timeout=timeout * SLACK, env={**os.environ, **(env or {})}, check=False)


class Whole(unittest.TestCase):
    def test_any_number_of_ranks_passes(self):
        for ranks in (1, 2, 3, 5):
            done = acc_test(ranks=ranks)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"acc-test: all is well: 13 checks of this machine, 11 of %d ranks?, [0-9.]+ s\n\Z" % ranks)
            self.assertNotIn("failed  ", done.stdout)

    def test_json_says_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            done = acc_test("--json", path)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(path) as file:
                told = json.load(file)
        self.assertTrue(told["ok"])
        self.assertEqual(told["ranks"], 2)
        self.assertEqual({one["name"] for one in told["results"]},
                         {"ranks", "reductions", "moves", "objects", "sub-groups", "sharding", "metrics", "training", "checkpoint",
                          "mismatch", "timeout"})
        self.assertEqual({one["verdict"] for one in told["results"]}, {"ok"})
        alone = acc_test("--json", "-")
        self.assertEqual(json.loads(alone.stdout)["ranks"], 2)

    def test_the_machine_alone(self):
        done = acc_test("--local_only")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("2 ranks", done.stdout)
        self.assertIn("all is well: 13 checks of this machine", done.stdout)


class Bandwidth(unittest.TestCase):
    def test_the_table_is_nccl_tests(self):
        done = acc_test("--bandwidth", "-b", "8", "-e", "64K", "-f", "8", "-n", "5", "--only", "all_reduce,all_gather")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = re.findall(r"^ +(\d+) +(\d+) +f32 +(sum|none) +-1 +([0-9.]+) +([0-9.]+) +([0-9.]+) +(\d+)", done.stdout, re.M)
        self.assertEqual([int(row[0]) for row in rows], [8, 64, 512, 4096, 32768] * 2)
        self.assertEqual({row[6] for row in rows}, {"0"})
        self.assertIn("# Out of bounds values : 0 OK", done.stdout)
        self.assertIn("# Avg bus bandwidth", done.stdout)

    def test_every_operation_and_type_is_right(self):
        done = acc_test("--bandwidth", "-b", "4K", "-e", "4K", "-n", "1", "-w", "0", "-d", "all", "-o", "all", "-r", "all", "-u", "1", "--only",
                        "all_reduce,reduce,broadcast,all_gather,reduce_scatter,all_to_all,gather,scatter", ranks=3)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr)
        self.assertIn("# Out of bounds values : 0 OK", done.stdout)

    def test_too_slow_for_what_was_asked_is_a_failure(self):
        done = acc_test("--bandwidth", "-b", "1K", "-e", "1K", "-n", "2", "--only", "all_reduce", env={"NCCL_TESTS_MIN_BW": "1e6"})
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("FAILED: bandwidth", done.stdout)


class Wrong(unittest.TestCase):
    def test_words_that_it_can_t_use(self):
        for words, said in ((["x.py"], "'x.py'"), (["-b", "8"], "--bandwidth"), (["--bandwidth", "-b", "much"], "-b 'much'"),
                            (["--bandwidth", "-b", "2M", "-e", "1M"], "-e is smaller"), (["--nprc=3"], "--nprc")):
            done = acc_test(*words)
            self.assertEqual(done.returncode, 2, (words, done.stdout, done.stderr))
            self.assertIn(said, done.stderr)

    def test_a_port_that_is_taken_is_told(self):
        import socket
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            done = acc_test(f"--main_process_port={port}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"port {port} is already in use", done.stderr)


if __name__ == "__main__":
    main()
