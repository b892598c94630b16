#!/usr/bin/env python3
"""Checks, as a torchrun user's script would, that the ranks are all there and that a restart is counted."""
import os
import sys

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
attempt, allowed = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["TORCHELASTIC_MAX_RESTARTS"])
if attempt == 0 and rank == 1:
    sys.exit("rank 1: failing once, to be restarted")
print(f"rank {rank} of {world}, restart {attempt} of at most {allowed}", flush=True)
