#!/usr/bin/env python3
"""Runs check_launch.py over the recorded cases, those of several machines too: with --run they start on loopback.

    run_cases.py --acc-launch PATH [--run]
"""
import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--acc-launch", required=True)
    parser.add_argument("--run", action="store_true")
    args = parser.parse_args()
    words = [sys.executable, os.path.join(HERE, "check_launch.py"), "--acc-launch", args.acc_launch, os.path.join(HERE, "accelerate")]
    return subprocess.call(words + (["--run"] if args.run else []))


sys.exit(main())
