#!/usr/bin/env python3
"""Prints which unit tests of build/arm64 don't run under qemu-user, and why; fails for a name in emulated.txt that no test has (any more)."""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    shown = subprocess.run(["ctest", "--test-dir", ROOT / "build/arm64", "--show-only=json-v1"], capture_output=True, text=True, check=True).stdout
    known = {test["name"] for test in json.loads(shown)["tests"]}
    missing, counts = [], {}
    for line in (ROOT / "tests/arm64/emulated.txt").read_text().splitlines():
        if reason := re.fullmatch(r"# (emulated-\w+: .*)", line):
            label = reason[1]
            counts[label] = 0
        elif line:
            counts[label] += 1
            missing += [] if line in known else [line]
    for label, count in counts.items():
        print(f"not run: {count} tests, label {label}")
    for name in missing:
        print(f"emulated.txt: no test has this name: {name}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
