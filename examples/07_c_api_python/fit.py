#!/usr/bin/env python3
"""fit.py: a straight line through points, by all ranks together, from Python by the C interface and nothing else.

What a training loop needs is the library's: each rank gets its share of every batch, gradients are averaged over the ranks, SGD
makes the step, and a checkpoint after each epoch lets the job go on where it was killed. The line has the same bits on every rank.
"""
import argparse
import array
import json
import os
import random

import acc

POINTS, BATCH, EPOCHS = 1000, 60, 20  # a batch is of all ranks together


def points():
    chance = random.Random(0)  # the same on every rank
    for _ in range(POINTS):
        x = chance.uniform(-1, 1)
        yield x, 3 * x - 2 + chance.gauss(0, 0.02)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default="fit_checkpoints")
    parser.add_argument("--crash-after-epoch", type=int, help="rank 0 kills itself, in the first attempt")
    options = parser.parse_args()
    data = list(points())
    with acc.Comm() as comm:
        line = array.array("d", [0, 0])  # slope, offset
        reducer = acc.Reducer(comm, {"line": line})
        optimizer = acc.Sgd(reducer, learning_rate=0.3, momentum=0.5)
        checkpoints = acc.Checkpoints(comm, options.folder, optimizer, keep_last=2)
        done = checkpoints.load()
        if done is not None and comm.rank == 0:
            print(f"going on after epoch {done}")

        for epoch in range(0 if done is None else done + 1, EPOCHS):
            for batch in comm.shard(POINTS, BATCH, epoch):  # this rank's samples of each batch
                reducer.zero()
                gradient = reducer.gradient(0)
                for sample in batch:
                    x, y = data[sample]
                    error = (line[0] * x + line[1] - y) / len(batch)
                    gradient[0] += error * x
                    gradient[1] += error
                reducer.ready(0)
                reducer.finish()  # here it is the mean over all ranks
                optimizer.step()
            checkpoints.save(epoch)
            acc.heartbeat(epoch)
            if epoch == options.crash_after_epoch and comm.rank == 0 and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
                print(f"rank 0: crashing on purpose after epoch {epoch}", flush=True)
                os.kill(os.getpid(), 9)

        found = comm.all_gather(json.dumps(list(line)).encode())
        if comm.rank == 0:
            print(f"y = {line[0]:.2f} x {line[1]:+.2f} from {POINTS} points on {comm.size} ranks")
            print("the same bits on every rank" if len(set(found)) == 1 else f"the ranks differ: {found}")


if __name__ == "__main__":
    main()
