#!/usr/bin/env python3
"""Plans every config under configs/ on the machine that it is meant for; nothing may be complained about.

    configs_test.py --acc-launch PATH CONFIG_DIR
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

# File name -> kind of the plan, and what the machine must have beside eight GPUs.
EXPECTED = {
    "single.yaml": ("process", {}),
    "multi_cpu.yaml": ("elastic", {"gpus": 0}),
    "multi_gpu.yaml": ("elastic", {}),
    "fsdp.yaml": ("elastic", {}),
    "fsdp2.yaml": ("elastic", {}),
    "deepspeed_zero3.yaml": ("elastic", {"deepspeed": "0.15.0"}),
    "megatron.yaml": ("elastic", {}),
    "fp8.yaml": ("elastic", {"fp8": True}),
    "dynamo.yaml": ("elastic", {}),
    "parallelism.yaml": ("elastic", {}),
    "mpirun.yaml": ("mpirun", {"gpus": 0, "mpi": "openmpi"}),
    "two_machines.yaml": ("elastic", {}),
    "elastic.yaml": ("elastic", {}),
    "whole_job.yaml": ("elastic", {"gpus": 0}),
}


def check(acc_launch, path, facts_path):
    name = os.path.basename(path)
    if name not in EXPECTED:
        return "has no line in configs_test.py"
    kind, facts = EXPECTED[name]
    with open(facts_path, "w", encoding="utf-8") as file:
        json.dump({"gpus": 8, **facts}, file)
    words = [acc_launch, "--print_plan", "--host_facts", facts_path, "--config_file", path]
    if name != "whole_job.yaml":
        words.append("train.py")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return done.stderr.strip()
    got = json.loads(done.stdout)["kind"]
    return None if got == kind else f"plans {got}, not {kind}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--acc-launch", required=True)
    parser.add_argument("configs")
    args = parser.parse_args()
    paths = sorted(glob.glob(os.path.join(args.configs, "*.yaml")))
    missing = set(EXPECTED) - {os.path.basename(path) for path in paths}
    bad = [f"{name}: is missing" for name in sorted(missing)]
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            said = check(args.acc_launch, path, os.path.join(folder, "facts.json"))
            if said:
                bad.append(f"{os.path.basename(path)}: {said}")
    print("\n".join(bad) or f"{len(paths)} configs planned")
    return 1 if bad else 0


sys.exit(main())
