#!/usr/bin/env python3
"""The shape of every training that survives a crash, without a framework: load the checkpoint, work, save, repeat.

Each rank counts to --steps; rank 0 saves the step it has reached. In the first attempt --crash-rank dies at
--crash-at-step; acc-launch stops the others, starts all again, and they go on from the checkpoint.
"""
import argparse
import json
import os
import pathlib
import signal
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--checkpoint", type=pathlib.Path, required=True)
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--crash-at-step", type=int, default=6)
parser.add_argument("--crash-rank", type=int, default=1)
args = parser.parse_args()

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])

step = 0
if args.checkpoint.exists():
    step = json.loads(args.checkpoint.read_text())["step"]
if rank == 0:
    print(f"attempt {attempt}: starting after step {step}", flush=True)

while step < args.steps:
    step += 1
    time.sleep(0.05)  # the work
    if attempt == 0 and step == args.crash_at_step and args.crash_rank < world_size:
        while rank != args.crash_rank:  # a training's collectives keep its ranks together: nobody gets past a crash
            time.sleep(1)
        while rank != 0 and not args.checkpoint.exists():
            time.sleep(0.01)
        print(f"rank {rank}: crashing on purpose at step {step}", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if rank == 0:
        # Written beside it, then renamed: whoever reads sees the old checkpoint or the new one, never half of one.
        unfinished = args.checkpoint.with_suffix(".tmp")
        unfinished.write_text(json.dumps({"step": step}))
        os.replace(unfinished, args.checkpoint)

if rank == 0:
    print(f"done: {step} steps, attempt {attempt}", flush=True)
