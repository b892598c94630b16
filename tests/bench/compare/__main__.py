#!/usr/bin/env python3
"""acc-launch, acc-agent and the runtime library beside what is installed of torchrun, accelerate, mpirun, hydra, supervisord, TCPStore,
elastic, etcd, gloo, MPI's collectives, forkserver and systemd: measured by turns in one run.

    python3 tests/bench/compare [--quick] [--parts start,restart,…] [--budget SECONDS] [--bin FOLDER] [--json FILE] [--write]

Prints tables of medians, the middle half of the samples, and ratios. --write renews docs/benchmarks.json (raw samples),
docs/benchmarks.md, its plots and the tables of README.md from it. --from FILE measures nothing and takes the samples of a run.
What isn't installed is named. Parts that need root or network namespaces are left out, with the reason, where these are missing.
tests/bench/compare.sh installs, builds and then runs this.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))

import machine  # noqa: E402
import page  # noqa: E402
from session import Session, say  # noqa: E402

PROGRAMS = ("acc-launch", "acc-agent", "acc-ctl", "acc-bench-rendezvous", "acc-bench-collectives", "acc-bench-overlap", "acc-bench-heartbeat", "fake_worker")


def python_with_torch():
    """A Python that has torch, or None; several may be on a machine."""
    for python in (os.environ.get("PYTHON_EXEC"), shutil.which("python3"), "/usr/bin/python3"):
        if python and os.path.exists(python) and subprocess.run([python, "-c", "import torch.distributed"], capture_output=True).returncode == 0:
            return python
    return None


def commit():
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--exclude=*"], capture_output=True, text=True)
    return done.stdout.strip() or None


def version_of(program):
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    found = re.search(r"\d+\.\d+\.\d+\S*", done.stdout + done.stderr)
    return found[0] if found else None


def measure(options):
    import parts
    missing = [name for name in PROGRAMS if not os.access(os.path.join(options.bin, name), os.X_OK)]
    if missing:
        raise SystemExit(f"compare: not built in {options.bin}: {', '.join(missing)}. tests/bench/compare.sh builds them")
    wanted = options.parts.split(",") if options.parts else list(parts.PARTS)
    if unknown := set(wanted) - set(parts.PARTS):
        raise SystemExit(f"compare: unknown parts {', '.join(sorted(unknown))}; there are {', '.join(parts.PARTS)}")
    python = python_with_torch()
    session = Session(options.bin, python, options.budget, options.quick)
    say(f"Python with torch: {python or 'none: torchrun, TCPStore, elastic, gloo and warm starts are left out'}")
    began, load = time.monotonic(), machine.before()
    say(f"load average before: {load['load_average'][0]}, other processes keep {load['others_cores']} cores busy")
    for name in wanted:
        session.measure(name, parts.PARTS[name])
    after = [float(word) for word in machine.read("/proc/loadavg").split()[:3]]
    return {"format": 1, "date": time.strftime("%Y-%m-%d", time.gmtime()), "quick": options.quick, "seconds": round(time.monotonic() - began),
            "version": version_of(os.path.join(options.bin, "acc-launch")), "commit": commit(), "machine": machine.facts(), "versions": machine.versions(python),
            "load": {"before": load, "after": after}, "parts": session.parts, "errors": session.errors, "absent": session.absent, "notes": session.notes,
            "samples": session.samples}


def main():
    parser = argparse.ArgumentParser(prog="compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of everything, small: does it work? Its figures are not for the docs")
    parser.add_argument("--parts", help="only these, comma-separated")
    parser.add_argument("--budget", type=float, default=340, help="seconds that rounds may take together (340); what a part needs at least comes on top")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--json", help="write the raw samples there, too")
    parser.add_argument("--from", dest="source", help="measure nothing: take the samples of this file")
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.json, docs/benchmarks.md, its plots and README.md")
    parser.add_argument("--root", default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.bin = os.path.abspath(options.bin)
    if options.source:
        with open(options.source, encoding="utf-8") as file:
            run = json.load(file)
    else:
        run = measure(options)
    print(page.table(run))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(page.as_json(run))
    if options.write:
        if run["quick"] or options.parts:
            raise SystemExit("compare: --write wants a whole run, without --quick and --parts")
        for path in page.write(run, options.root):
            say(f"wrote {path}")
    say(f"took {run['seconds']} s" + "".join(f"; {name} ended early: {why}" for name, why in run["errors"].items()))
    return 1 if run["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
