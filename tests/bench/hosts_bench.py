#!/usr/bin/env python3
"""All-reduce between hosts (network namespaces of this machine): ours beside gloo and Open MPI, by turns.

  hosts_bench.py [--bin build/release/bin] [--layouts ab,abc] [--bytes 16777216,67108864] [--rounds 3]

A layout names the host of each rank: "ab" is one rank on each of two hosts, "aabb" two on each. gloo is PyTorch's, by a
Python that has torch (PYTHON_EXEC); Open MPI's benchmark, peers/collectives_mpi.c, is built where its compiler is installed.
Needs root. Prints the best median and the ratios ours / peer.
"""
import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "integration"))
from hosts import WHY_NOT, Hosts  # noqa: E402, F401

GLOO = r"""
import json, os, sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
sizes = [int(size) for size in sys.argv[1].split(",")]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
x = torch.zeros(max(sizes) // 4)
for size in sizes:
    part, took = x[: size // 4], []
    dist.all_reduce(part)
    for _ in range(12):
        dist.barrier()
        begun = time.monotonic()
        dist.all_reduce(part)
        span = torch.tensor([-begun, time.monotonic()], dtype=torch.float64)
        dist.all_reduce(span, op=dist.ReduceOp.MAX)  # the clock of all namespaces is one
        took.append(float(span.sum()) * 1e6)
    if rank == 0:
        print(json.dumps({"op": "allreduce", "bytes": size, "lat_us_median": sorted(took)[len(took) // 2]}), flush=True)
"""


def figures(text):
    return {row["bytes"]: row["lat_us_median"] for row in map(json.loads, filter(lambda line: line.startswith("{"), text.splitlines()))
            if row["op"] == "allreduce"}


def run_ranks(hosts, layout, port, command, **more):
    ranks = []
    for rank, host in enumerate(layout):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(len(layout)), MASTER_ADDR=hosts.address("a"), MASTER_PORT=str(port),
                   GLOO_SOCKET_IFNAME="eth0", OMP_NUM_THREADS="1", **more)
        ranks.append(hosts.run(host, command, env=env, stdout=subprocess.PIPE, text=True))
    return figures("".join(rank.communicate(timeout=120)[0] for rank in ranks))


def ours(hosts, layout, port, args):
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as board:
        points = ",".join(f"allreduce:{size}" for size in args.bytes.split(","))
        return run_ranks(hosts, layout, port, [os.path.join(args.bin, "acc-bench-collectives"), "--ranks", str(len(layout)), "--budget-ms",
                                               "150", "--board", board.name, "--points", points])


def gloo(hosts, layout, port, args):
    return run_ranks(hosts, layout, port, [args.python, "-c", GLOO, args.bytes])


def openmpi(hosts, layout, _, args):
    """mpirun in the first host; in place of ssh it enters the others' namespaces."""
    with tempfile.TemporaryDirectory() as folder:
        enter = os.path.join(folder, "enter")
        with open(enter, "w", encoding="utf-8") as file:
            lines = "".join(f"{host}) ns={hosts.namespace(host)};;\n" for host in sorted(set(layout)))
            file.write(f'#!/bin/sh\nhost=$1; shift\ncase $host in\n{lines}esac\n'
                       'exec nsenter --net=/run/netns/$ns unshare --uts sh -c "hostname $host; $*"\n')
        os.chmod(enter, 0o755)
        places = ",".join(f"{host}:{layout.count(host)}" for host in sorted(set(layout)))
        mpi = hosts.run("a", ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-np", str(len(layout)), "--host", places,
                              "--mca", "plm_rsh_agent", enter, "--mca", "btl", "tcp,self,vader", "--mca", "btl_tcp_if_include", "eth0",
                              "--mca", "oob_tcp_if_include", "eth0", args.openmpi, "150",
                              *(f"allreduce:{size}" for size in args.bytes.split(","))],
                        stdout=subprocess.PIPE, text=True)
        return figures(mpi.communicate(timeout=120)[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "bin"))
    parser.add_argument("--layouts", default="ab,abc")
    parser.add_argument("--bytes", default="16777216,67108864")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", default=os.environ.get("PYTHON_EXEC", "/usr/bin/python3"))
    args = parser.parse_args()
    peers = {"ours": ours}
    if subprocess.run([args.python, "-c", "import torch.distributed"], capture_output=True).returncode == 0:
        peers["gloo"] = gloo
    with tempfile.TemporaryDirectory() as folder:
        if shutil.which("mpirun.openmpi") and shutil.which("mpicc.openmpi"):
            args.openmpi = os.path.join(folder, "collectives_mpi")
            subprocess.run(["mpicc.openmpi", "-O2", os.path.join(ROOT, "tests/bench/peers/collectives_mpi.c"), "-o", args.openmpi], check=True)
            peers["openmpi"] = openmpi
        measure(peers, args)


def measure(peers, args):
    for layout in args.layouts.split(","):
        best = collections.defaultdict(dict)
        with Hosts(sorted(set(layout))) as hosts:
            for turn in range(args.rounds):
                for index, (name, run) in enumerate(peers.items()):
                    for size, took in run(hosts, layout, 29600 + 20 * turn + index, args).items():
                        best[size][name] = min(took, best[size].get(name, took))
        for size, took in sorted(best.items()):
            ratios = "  ".join(f"ours/{name} {took['ours'] / took[name]:.2f}" for name in took if name != "ours")
            print(f"{layout:6} {size:10} bytes  " + "  ".join(f"{name} {us / 1000:.2f} ms" for name, us in took.items()) + "  " + ratios)


if __name__ == "__main__":
    main()
