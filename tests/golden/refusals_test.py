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
    (["--nproc-per-node=1", "--nnodes=1:2", "--master-addr=h", "--master-port=28651", "plain"], None, 2,
     ["--nnodes: '1:2': a number of machines that may change needs --rdzv_backend=tcp"]),
    (["--nnodes=2", "--node-rank=0", "--master-addr=10.0.0.1", "--master-port=28651", "plain"], None, 1,
     ["several machines need a secret", "acc-launch --make_secret", "--insecure", ".config/acc/secret"]),
    (["--nnodes=2", "--node-rank=0", "--master-addr=10.0.0.1", "--master-port=28652", "--secret_file=none", "plain"],
     None, 1, ["'none'"]),
    (["--nnodes=2", "--node-rank=0", "--master-addr=10.0.0.1", "--master-port=0", "plain"], None, 2, ["need a fixed port to meet"]),
    (["--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1", "--lease=6", "--dead_after=fast", "plain"], None, 2,
     ["--dead_after", "'fast' is not a duration"]),
    (["--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1", "--lease=6", "plain"], None, 2, ["--lease: 6 s is too short"]),
    (["--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:x", "plain"], None, 2, ["'h:x' is not HOST:PORT"]),
    (["--nnodes=1:2", "--rdzv-backend=c10d", "plain"], None, 2, ["--main_process_ip", "--rdzv_endpoint"]),
    (["--make_secret", "plain"], None, 73, ["--make_secret:", "exists already"]),
    (["--tpu", "plain"], None, 1, ["TPUs are not supported"]),
    (["--config_file", "nope.yaml", "plain"], None, 2, ["nope.yaml"]),
    (["--config_file", ".", "plain"], None, 2, ["not a regular file"]),
    (["--config_file", "cfg.yaml", "--num_processes=two", "plain"],
     "distributed_type: MULTI_GPUS\nmax_restarts: many\nmixed_precision: no\nzeta: 1\ngrace: fast\n", 2,
     ["'two' is not a whole number", "cfg.yaml:1: distributed_type 'MULTI_GPUS'", "did you mean MULTI_GPU?",
      "cfg.yaml:2: max_restarts: 'many'", "cfg.yaml:3: mixed_precision: unquoted no", "cfg.yaml:4: unknown key 'zeta'",
      "cfg.yaml:5: grace: 'fast' is not a duration"]),
    (["--config_file", "cfg.yaml", "--tee=9", "plain"],
     "num_processes: 2.0\nmax_restarts: -1\npreempt_signals: KILL\ndistributed_type: MULTI_CPU\nmain_process_port: 70000\nzeta: 1\n", 2,
     ["--tee: '9' names no streams", "cfg.yaml:1: num_processes: '2.0' is not a whole number\nacc-launch: cfg.yaml:2: max_restarts: -1 is out of range: "
      "0 or more\nacc-launch: cfg.yaml:3: preempt_signals: 'KILL' can't be caught", "cfg.yaml:5: main_process_port: 70000 is not a port: 0 to 65535\n"
      "acc-launch: cfg.yaml:6: unknown key 'zeta'"]),
    (["--cpu", "--num_processes=2", "--local_ranks_filter=0,5", "plain"], None, 2, ["--local_ranks_filter: '0,5'", "local ranks 0..1"]),
    (["--cpu", "shell.sh"], None, 126, ["cannot start 'shell.sh': Permission denied (chmod +x it?)"]),
    (["--cpu", "true", "plain"], None, 127, ["a program on PATH? add --no_python"]),
    (["--nnodes=2", "plain"], None, 2, ["--main_process_ip", "--master_addr or --rdzv_endpoint"]),
    (["--cpu", "--log_dir=plain/logs", "plain"], None, 73, ["--log_dir: can't write to 'plain/logs': Not a directory"]),
    (["--cpu", "--log_dir=/proc/none/logs", "plain"], None, 73, ["--log_dir: can't write to '/proc/none/logs': No such file or directory"]),
    (["--cpu", "--report=none/r.json", "plain"], None, 73, ["--report: can't write to 'none/r.json': No such file or directory"]),
    (["--cpu", "--report=.", "plain"], None, 73, ["--report: can't write to '.': Is a directory"]),
    (["--cpu", "--progress_file=none/p", "--no_python", "true"], None, 0, ["--progress_file: there is no folder 'none' yet"]),
    (["--config_file", "cfg.yaml", "plain"], "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: 'NO'\n", 2,
     ["only LOCAL_MACHINE"]),
]


def output_gone(acc_launch):
    """What was asked for can't be shown: a disk that is full, a descriptor that is closed."""
    bad = []
    for words in ("--help", "--version", "--print_config", "--print_plan --cpu x"):
        for where in (">/dev/full", ">&-"):
            line = f"{acc_launch} {words} {where}"
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=20, check=False)
            if done.returncode != 73 or "can't write to the standard output" not in done.stderr:
                bad.append(f"{line}: exit code {done.returncode}, not 73: {done.stderr.strip()[-200:]}")
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--acc-launch", required=True)
    acc_launch = os.path.abspath(parser.parse_args().acc_launch)
    bad = []
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "plain"), "w", encoding="utf-8") as file:
            file.write("pass\n")
        with open(os.path.join(folder, "shell.sh"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n")
        env = {"PATH": os.environ["PATH"], "HOME": folder}
        for words, yaml, code, said in CASES:
            with open(os.path.join(folder, "cfg.yaml"), "w", encoding="utf-8") as file:
                file.write(yaml or "")
            done = subprocess.run([acc_launch, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=20, check=False)
            if done.returncode != code:
                bad.append(f"{words}: exit code {done.returncode}, not {code}: {done.stderr.strip()[-200:]}")
            bad += [f"{words}: stderr lacks {word!r}" for word in said if word not in done.stderr]
    bad += output_gone(acc_launch)
    print("\n".join(bad) or f"{len(CASES)} refusals as expected")
    return 1 if bad else 0


sys.exit(main())
