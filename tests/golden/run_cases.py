#!/usr/bin/env python3
"""Runs check_launch.py over the recorded cases that this version plans or starts.

    run_cases.py --acc-launch PATH [--run]

With --run the cases of several machines are left out: they need the rendezvous of a later version.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--acc-launch", required=True)
    parser.add_argument("--run", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as chosen:
        for path in glob.glob(os.path.join(HERE, "accelerate", "*.json")):
            with open(path, encoding="utf-8") as file:
                several_machines = "nodes" in json.load(file)
            if not (args.run and several_machines):
                os.symlink(path, os.path.join(chosen, os.path.basename(path)))
        words = [sys.executable, os.path.join(HERE, "check_launch.py"), "--acc-launch", args.acc_launch, chosen]
        return subprocess.call(words + (["--run"] if args.run else []))


sys.exit(main())
