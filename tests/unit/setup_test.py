"""cmake/setup.sh: what can't be installed is left out, where a script can do without."""
import pathlib, subprocess, unittest

SETUP = pathlib.Path(__file__).resolve().parents[2] / "cmake/setup.sh"
# A machine with nothing installed and no way to the packages.
BARE = f"""set -euo pipefail
. {SETUP}
unset ACC_NO_SETUP
acc_images=/nowhere
acc_has_torch() {{ return 1; }}
acc_missing() {{ printf '%s\\n' "$@"; }}
id() {{ echo 0; }}
apt-get() {{ return 100; }}
dpkg-query() {{ return 1; }}
env() {{ "$@"; }}
"""


def shell(text):
    return subprocess.run(["bash", "-c", BARE + text], capture_output=True, text=True, timeout=30)


class Setup(unittest.TestCase):
    def test_a_script_that_can_do_without_torch_goes_on_where_it_cant_be_installed(self):
        done = shell("acc_need_torch || echo 'without torch'; if acc_need_torch; then echo with; else echo left out; fi")
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "left out"), done.stderr)
        self.assertIn("without torch\n", done.stdout)
        self.assertIn("apt-get could not install: python3-torch python3-numpy", done.stderr)

    def test_so_it_does_without_the_images(self):
        done = shell("acc_need_images || echo 'without images'")
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "without images"), done.stderr)
        self.assertIn("apt-get could not install: dataset-fashion-mnist", done.stderr)

    def test_one_that_needs_them_ends(self):
        for needed in ("acc_need_torch", "acc_need_images", "acc_install cmake"):
            with self.subTest(needed):
                done = shell(f"{needed}; echo went on")
                self.assertEqual(done.returncode, 1)
                self.assertNotIn("went on", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
