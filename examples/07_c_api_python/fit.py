#!/usr/bin/env python3
"""fit.py: a straight line through points that are spread over the ranks, by gradient descent.

Each rank knows its own points only; the mean of the gradients over all ranks is what one process with all points would
compute, so the parameters stay the same on every rank, bit for bit.
"""
import array
import json
import random

import acc

STEPS, RATE, POINTS = 400, 0.3, 250


def main():
    with acc.Comm() as comm:
        chance = random.Random(comm.rank)  # other points on every rank
        xs = [chance.uniform(-1, 1) for _ in range(POINTS)]
        ys = [3 * x - 2 + chance.gauss(0, 0.1) for x in xs]

        slope, offset = 0.0, 0.0
        for step in range(STEPS):
            errors = [slope * x + offset - y for x, y in zip(xs, ys)]
            gradient = array.array("d", [sum(e * x for e, x in zip(errors, xs)) / POINTS, sum(errors) / POINTS])
            comm.all_reduce(gradient, acc.AVG)
            slope -= RATE * gradient[0]
            offset -= RATE * gradient[1]
            acc.heartbeat(step)

        found = comm.all_gather(json.dumps([slope, offset]).encode())
        if comm.rank == 0:
            print(f"y = {slope:.2f} x {offset:+.2f} from {POINTS * comm.size} points on {comm.size} ranks")
            print("the same bits on every rank" if len(set(found)) == 1 else f"the ranks differ: {found}")


if __name__ == "__main__":
    main()
