#!/usr/bin/env python3
"""examples_test.py ACC_LAUNCH EXAMPLE: runs the ```sh blocks of one section of examples/README.md and compares.

The blocks run one after the other in one scratch folder in which examples/ is at hand. Each line of the ```text block that
follows must appear among the lines they print (stdout and stderr), where … stands for anything. Exit code 77: skipped.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 580 * int(os.environ.get("ACC_TEST_LIMIT_FACTOR", "1"))


def blocks_of(example):
    """[(shell commands, expected lines)] of the section."""
    readme = (ROOT / "examples" / "README.md").read_text()
    section = re.search(rf"^## {re.escape(example)}$(.*?)(?=^## |\Z)", readme, re.M | re.S)
    if not section:
        sys.exit(f"examples/README.md has no section {example}")
    found = re.findall(r"^```sh\n(.*?)^```\n^```text\n(.*?)^```$", section[1], re.M | re.S)
    if not found:
        sys.exit(f"section {example} of examples/README.md has no commands with expected output")
    return [(commands, expected.splitlines()) for commands, expected in found]


def python_with_torch(*modules):
    """As acc_find_torch of cmake/setup.sh: the first interpreter that has torch with gloo, and these modules; None if there is none."""
    places = [os.environ.get("PYTHON_EXEC")]
    places += [f"{os.environ[name]}/bin/python3" for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if name in os.environ]
    for python in filter(None, places + ["python3", "/usr/bin/python3"]):
        probe = (f"import {', '.join(['numpy', 'sys', *modules])}, torch.distributed as d; print(sys.executable); "
                 "sys.exit(not d.is_gloo_available())")
        try:
            done = subprocess.run([python, "-c", probe], capture_output=True, text=True)
        except OSError:
            continue
        if done.returncode == 0:
            return done.stdout.strip()
    return None


def with_whole_lines(environment):
    """Python writes whole lines there (whole_lines/sitecustomize.py)."""
    places = [str(pathlib.Path(__file__).resolve().parent / "whole_lines"), environment.get("PYTHONPATH")]
    return {**environment, "PYTHONPATH": ":".join(filter(None, places))}


def missing(expected, printed):
    def seen(line):
        rule = re.compile(".*".join(map(re.escape, line.split("…"))))
        return any(rule.fullmatch(one) for one in printed)
    return [line for line in expected if not seen(line)]


def main():
    program, example = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
                   "LD_LIBRARY_PATH": f"{program.parent.parent}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    images = pathlib.Path("/usr/share/datasets/fashion-mnist").is_dir()
    if example == "08_fashion_mnist_cpp" and not images:
        print("SKIP: needs the package dataset-fashion-mnist")
        return 77
    if example == "02_fashion_mnist":
        python = python_with_torch()
        if python is None or not images:
            print("SKIP: needs a Python with torch and gloo, and the package dataset-fashion-mnist")
            return 77
        print(f"Python with torch: {python}")
        environment["PYTHON_EXEC"] = python
    if example == "11_accelerate":
        python = python_with_torch("accelerate")
        if python is None:
            print("SKIP: needs a Python with torch, gloo and accelerate")
            return 77
        print(f"Python with accelerate: {python}")
        environment["PYTHON_EXEC"] = python
    if example == "10_notebook":
        python = python_with_torch("nbconvert", "ipykernel", "cloudpickle")
        if python is None:
            print("SKIP: needs a Python with torch, nbconvert, ipykernel and cloudpickle")
            return 77
        environment["PYTHONPATH"] = f"{ROOT}/runtime/python"
        environment["PATH"] = f"{pathlib.Path(python).parent}:{environment['PATH']}"

    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        os.symlink(ROOT / "examples", f"{scratch}/examples")
        for commands, expected in blocks_of(example):
            done = subprocess.run(["bash", "-uc", commands], cwd=scratch, env=with_whole_lines(environment), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)
            printed = done.stdout.decode(errors="replace")
            print(commands, printed, sep="\n", end="\n\n")
            for line in missing(expected, printed.splitlines()):
                print(f"FAIL: not printed: {line}")
                failed += 1
            if done.returncode != 0:
                print(f"FAIL: exit code {done.returncode}")
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
