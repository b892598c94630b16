#!/usr/bin/env python3
"""oldest_root.py [--suite bullseye] [--mirror URL] [--wheel FILE] [--keep FOLDER]: the wheel in a root of an old distribution.

Makes the root with debootstrap (as root, from a mirror of Debian's), installs the wheel with the pip of that distribution into a fresh virtual
environment, without network, and runs programs, a training and notebook_launcher there. No compiler, and no file of this machine but the
wheel and the script of example 03. --keep FOLDER makes the root there, or uses the one that is there. Exit code 77: skipped, with the reason.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = "python3,python3-venv"
LIMIT_S = 900

NOTEBOOK = """
import acc_launch, functions
acc_launch.notebook_launcher(functions.tell, ("hello",), num_processes=2)
try:
    acc_launch.notebook_launcher(functions.fail, num_processes=2)
except acc_launch.WorkerError as error:
    print(error.rank, repr(error.__cause__))
"""
FUNCTIONS = """
import os, time
def tell(word):
    print(word, os.environ["RANK"])
def fail():
    if os.environ["RANK"] == "1":
        raise ValueError("on purpose")
    time.sleep(600)
"""


def skip(why):
    print(f"SKIP: {why}")
    sys.exit(77)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", default="bullseye")
    parser.add_argument("--mirror", default="http://deb.debian.org/debian")
    parser.add_argument("--wheel", type=pathlib.Path, help="built from build/release/portable otherwise")
    parser.add_argument("--keep", type=pathlib.Path)
    return parser.parse_args()


def make_root(folder, suite, mirror):
    if (folder / "usr/bin/python3").exists():
        return
    if not shutil.which("debootstrap"):
        skip("no debootstrap: apt-get install debootstrap")
    folder.mkdir(parents=True, exist_ok=True)
    log = folder.with_name(folder.name + ".log")
    with open(log, "wb") as out:
        made = subprocess.run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite, folder, mirror], stdout=out,
                              stderr=subprocess.STDOUT, timeout=LIMIT_S)
    if made.returncode != 0:
        end = log.read_text(errors="replace").strip().splitlines()[-1:]
        skip(f"debootstrap could not make a root of {suite} from {mirror}: {' '.join(end)}")
    log.unlink()


def build_wheel(out):
    done = subprocess.run([sys.executable, ROOT / "cmake/wheel/build_wheel.py", "--out", out, "--fast"], capture_output=True, text=True)
    if done.returncode != 0:
        skip(done.stderr.strip())
    return pathlib.Path(done.stdout.strip())


class Root:
    """Commands in the root, in namespaces of their own: no network but loopback, and mounts that end with the command."""

    SETUP = ("mount -t proc proc {root}/proc && mount -t tmpfs shm {root}/dev/shm && ip link set lo up 2>/dev/null; "
             "mkdir -p {root}/dev/pts && mount -t devpts -o newinstance,ptmxmode=0666 devpts {root}/dev/pts; rm -f {root}/dev/ptmx; ln -s pts/ptmx {root}/dev/ptmx; "
             "for name in null zero random urandom tty full; do touch {root}/dev/$name && mount --bind /dev/$name {root}/dev/$name; done; "
             "exec chroot {root} /bin/sh -c \"$1\"")

    def __init__(self, folder):
        self.folder = folder
        (folder / "dev/shm").mkdir(exist_ok=True)

    def run(self, command):
        words = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", self.SETUP.format(root=self.folder), "sh", command]
        environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root", "LANG": "C.UTF-8", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        print(f"# {command}", flush=True)
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, env=environment)
        print(done.stdout, end="", flush=True)
        return done

    def expect(self, command, *patterns):
        done = self.run(command)
        missing = [one for one in patterns if not re.search(one, done.stdout, re.M)]
        if done.returncode != 0 or missing:
            sys.exit(f"FAIL: exit code {done.returncode}" + "".join(f"; not printed: {one}" for one in missing))


def check(root, wheel, version):
    """What a user of that distribution does. @throws SystemExit  the first that fails"""
    place = root.folder / "root/test"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    shutil.copy(wheel, place)
    shutil.copy(ROOT / "examples/03_survive_a_crash/train.py", place)
    (place / "functions.py").write_text(FUNCTIONS)
    (place / "notebook.py").write_text(NOTEBOOK)
    root.expect("cd /root/test && python3 -m venv venv && venv/bin/pip install --no-index ./*.whl", "Successfully installed acc-launch")
    root.expect("ldd --version; cd /root/test && for name in acc acc-launch acc-agent acc-rendezvous acc-test acc-ctl acc-env acc-config; do "
                "venv/bin/$name --version || exit 1; done; venv/bin/acc-top --help", rf"^acc-config {re.escape(version)}$", "acc-ctl top")
    root.expect("/root/test/venv/bin/acc-env", "glibc|interpreter")
    root.expect("/root/test/venv/bin/acc-test --num_processes 2", "all is well")
    root.expect("cd /root/test && venv/bin/acc-launch --num_processes 2 --max_restarts 3 train.py --checkpoint counter.json",
                "killed by SIGSEGV", "^done: 10 steps, attempt 1$")
    root.expect("cd /root/test && venv/bin/python -m acc_launch --num_processes 2 --preload decimal functions.py")
    root.expect("cd /root/test && venv/bin/python notebook.py", "^hello 0$", "^hello 1$", r"^1 ValueError\('on purpose'\)$")


def main():
    arguments = parse_arguments()
    if os.geteuid() != 0:
        skip("not root: a root of another distribution can't be entered")
    with tempfile.TemporaryDirectory(prefix="acc-old-") as scratch:
        wheel = arguments.wheel or build_wheel(scratch)
        folder = arguments.keep or pathlib.Path(scratch) / "root"
        make_root(folder.resolve(), arguments.suite, arguments.mirror)
        check(Root(folder.resolve()), wheel, wheel.name.split("-")[1])
    print(f"{wheel.name}: works in {arguments.suite}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
