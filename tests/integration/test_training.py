"""The C++ training example under acc-launch: killed again and again, it goes on exactly where it was.

    ACC_RESTARTS=100 python3 test_training.py      # the long form; default 12
"""
import os, subprocess, tempfile, unittest

from harness import BIN, PATIENCE, main

RESTARTS = int(os.environ.get("ACC_RESTARTS", "12"))
IMAGES = "/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz"
BATCH = 32


def losses(path):
    """Step -> the losses that were noted for it: more than one where a step was done again."""
    found = {}
    with open(path) as file:
        for line in file:
            step, loss = line.split()
            found.setdefault(int(step), []).append(loss)
    return found


@unittest.skipUnless(os.path.exists(IMAGES), "the images aren't here (Debian: dataset-fashion-mnist)")
class Resume(unittest.TestCase):
    def train(self, folder, ranks, *words, restarts=0):
        done = subprocess.run(
            [os.path.join(BIN, "acc-launch"), "--cpu", f"--num_processes={ranks}", "--num_machines=1", "--mixed_precision=no",
             "--dynamo_backend=no", f"--max_restarts={restarts}", "--restart_delay=0", os.path.join(BIN, "fashion_mnist"),
             "--project", os.path.join(folder, "project"), "--losses", os.path.join(folder, "losses"), "--epochs", "1",
             "--batch-size", str(BATCH), "--images", str(BATCH * (2 * RESTARTS + 3)), *words],
            capture_output=True, text=True, timeout=(60 + 3 * RESTARTS) * PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        return done

    def test_after_many_kills_the_loss_curve_is_that_of_an_undisturbed_run(self):
        with tempfile.TemporaryDirectory() as calm, tempfile.TemporaryDirectory() as stormy:
            plain = self.train(calm, 2)
            killed = self.train(stormy, 2, "--crash-every", "2", "--save-every", "1", restarts=RESTARTS + 3)
            self.assertIn(f"in attempt {RESTARTS + 1}", killed.stdout)
            expected, got = losses(os.path.join(calm, "losses")), losses(os.path.join(stormy, "losses"))
            self.assertEqual(sorted(got), sorted(expected))
            for step, values in got.items():
                self.assertEqual(set(values), set(expected[step]), f"step {step}")
            last = [line for line in plain.stdout.splitlines() if "done:" in line][0].split(" with")[0]
            self.assertIn(last, killed.stdout)

    def test_another_number_of_ranks_goes_on_with_the_next_batch(self):
        with tempfile.TemporaryDirectory() as folder:
            batches = 2 * RESTARTS + 3
            first = subprocess.run(
                [os.path.join(BIN, "acc-launch"), "--cpu", "--num_processes=2", "--num_machines=1", "--mixed_precision=no",
                 "--dynamo_backend=no", os.path.join(BIN, "fashion_mnist"), "--project", os.path.join(folder, "project"),
                 "--losses", os.path.join(folder, "losses"), "--epochs", "1", "--batch-size", str(BATCH), "--images",
                 str(BATCH * batches), "--save-every", "1", "--crash-at-step", "10", "--crash-rank", "0"],
                capture_output=True, text=True, timeout=60 * PATIENCE, check=False)
            self.assertEqual(first.returncode, 137, first.stderr)
            done = self.train(folder, 1)
            self.assertIn("1 ranks, going on after step 9", done.stdout)
            self.assertEqual(sorted(losses(os.path.join(folder, "losses"))), list(range(1, batches + 1)))


if __name__ == "__main__":
    main()
