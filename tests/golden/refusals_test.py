#!/usr/bin/env python3
"""What a user reads when acc-launch refuses, and the exit code.

    refusals_test.py --acc-launch PATH
"""
import argparse
import os
import subprocess
import sys
import tempfile

# Words, config file or None, exit code, what stderr must hold.
CASES = [
    ([], None, 2, ["required: SCRIPT"]),
    (["--num_proceses=2", "x.py"], None, 2, ["--num_proceses", "did you mean --num_processes?"]),
    (["--num_processes=2", "nope.py"], None, 127, ["cannot start 'nope.py': No such file or directory"]),
    (["--no_python", "nope"], None, 127, ["cannot start 'nope'"]),
    (["--no_python", "./plain"], None, 126, ["cannot start './plain': Permission denied"]),
    (["-m", "--no_python", "x"], None, 2, ["--module and --no_python"]),
    (["--nproc-per-node=2", "--num_processes=2", "plain"], None, 2, ["use one of the two ways"]),
    (["--nproc-per-node=1", "--nnodes=1:2", "--master-addr=h", "--master-port=28651", "plain"], None, 1, ["later version"]),
    (["--tpu", "plain"], None, 1, ["TPUs are not supported"]),
    (["--config_file", "nope.yaml", "plain"], None, 2, ["nope.yaml"]),
    (["--config_file", ".", "plain"], None, 2, ["not a regular file"]),
    (["--config_file", "cfg.yaml", "--num_processes=two", "plain"],
     "distributed_type: MULTI_GPUS\nmax_restarts: many\nmixed_precision: no\nzeta: 1\ngrace: fast\n", 2,
     ["'two' is not a whole number", "cfg.yaml:1: distributed_type 'MULTI_GPUS'", "did you mean MULTI_GPU?",
      "cfg.yaml:2: max_restarts: 'many'", "cfg.yaml:3: mixed_precision: unquoted no", "cfg.yaml:4: unknown key 'zeta'",
      "cfg.yaml:5: grace: 'fast' is not a duration"]),
    (["--config_file", "cfg.yaml", "plain"], "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: 'NO'\n", 2,
     ["only LOCAL_MACHINE"]),
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--acc-launch", required=True)
    acc_launch = os.path.abspath(parser.parse_args().acc_launch)
    bad = []
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "plain"), "w", encoding="utf-8") as file:
            file.write("pass\n")
        env = {"PATH": os.environ["PATH"], "HOME": folder}
        for words, yaml, code, said in CASES:
            with open(os.path.join(folder, "cfg.yaml"), "w", encoding="utf-8") as file:
                file.write(yaml or "")
            done = subprocess.run([acc_launch, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=20, check=False)
            if done.returncode != code:
                bad.append(f"{words}: exit code {done.returncode}, not {code}: {done.stderr.strip()[-200:]}")
            bad += [f"{words}: stderr lacks {word!r}" for word in said if word not in done.stderr]
    print("\n".join(bad) or f"{len(CASES)} refusals as expected")
    return 1 if bad else 0


sys.exit(main())
