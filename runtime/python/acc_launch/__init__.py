"""acc-launch from Python: its programs, a launcher for notebooks, and what a worker tells its agent.

    acc_launch.run(["--num_processes", "4", "train.py"])            # as `acc-launch --num_processes 4 train.py`
    acc_launch.notebook_launcher(train, args=(0.1,), num_processes=4)   # a function of a notebook, as Accelerate's
    acc_launch.heartbeat(step)                                      # in a worker; without acc-launch it does nothing
"""
from __future__ import annotations

from .notebook import WorkerError, notebook_launcher
from .programs import find_program, run
from .worker import checkpoint, heartbeat, section

__all__ = ["WorkerError", "checkpoint", "find_program", "heartbeat", "notebook_launcher", "run", "section"]
