#!/usr/bin/env python3
"""Records what torch's schedulers and optimizers do, for tests/unit/runtime/training/scheduler_test.cpp.

    /usr/bin/python3 tests/golden/schedules/record.py > tests/golden/schedules/recorded.txt

Rows, words apart by a space, numbers as C reads them (%a), exactly:
    rates CASE STEP  RATE MOMENTUM ...     of each group, after so many scheduler steps
    loop CASE BATCH  RATE STEPS            after each batch of a loop as Hugging Face's Accelerate drives it
    weights CASE STEP  W ...               of an optimizer with two groups and a scheduler, in float64
"""
import math
import warnings

import torch
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

warnings.simplefilter("ignore")


# transformers.optimization, by its formulas
def constant(warmup):
    return lambda step: step / max(1.0, warmup) if step < warmup else 1.0


def linear(warmup, total):
    return lambda step: step / max(1, warmup) if step < warmup else max(0.0, (total - step) / max(1, total - warmup))


def cosine(warmup, total, cycles=0.5):
    def factor(step):
        if step < warmup:
            return step / max(1, warmup)
        progress = (step - warmup) / max(1, total - warmup)
        return max(0.0, 0.5 * (1.0 + math.cos(math.pi * cycles * 2.0 * progress)))

    return factor


def weights():
    return [torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)) for _ in range(2)]


def sgd(rates=(0.1, 0.01), momentum=0.9, values=None):
    values = values or weights()
    return torch.optim.SGD([{"params": [v], "lr": r} for v, r in zip(values, rates)], lr=0.5, momentum=momentum)


def adamw(rates=(0.1, 0.01), values=None):
    values = values or weights()
    return torch.optim.AdamW([{"params": [v], "lr": r} for v, r in zip(values, rates)], lr=0.5)


def momentum_of(group):
    return group["betas"][0] if "betas" in group else group["momentum"]


def row(kind, case, number, values):
    print(kind, case, number, *(float(v).hex() for v in values))


def rates(case, optimizer, make, steps):
    scheduler = make(optimizer)
    for step in range(steps + 1):
        if step > 0:
            optimizer.step()
            scheduler.step()
        row("rates", case, step, [v for g in optimizer.param_groups for v in (g["lr"], momentum_of(g))])


SCHEDULES = {
    "constant": (sgd, lambda o: LambdaLR(o, constant(10)), 15),
    "constant-no-warmup": (sgd, lambda o: LambdaLR(o, constant(0)), 3),
    "linear": (sgd, lambda o: LambdaLR(o, linear(10, 100)), 110),
    "linear-no-warmup": (sgd, lambda o: LambdaLR(o, linear(0, 7)), 9),
    "linear-all-warmup": (sgd, lambda o: LambdaLR(o, linear(5, 5)), 8),
    "cosine": (sgd, lambda o: LambdaLR(o, cosine(10, 100)), 110),
    "cosine-cycles": (sgd, lambda o: LambdaLR(o, cosine(3, 50, 1.5)), 60),
    "lambda": (sgd, lambda o: LambdaLR(o, lambda step: 0.95 ** step), 20),
    "lambda-groups": (sgd, lambda o: LambdaLR(o, [lambda step: 0.5 ** step, linear(2, 10)]), 12),
    "onecycle": (sgd, lambda o: OneCycleLR(o, 0.1, total_steps=30), 30),
    "onecycle-linear": (sgd, lambda o: OneCycleLR(o, 0.1, total_steps=30, anneal_strategy="linear"), 30),
    "onecycle-three": (sgd, lambda o: OneCycleLR(o, 0.1, total_steps=30, three_phase=True), 30),
    "onecycle-groups": (sgd, lambda o: OneCycleLR(o, [0.1, 0.02], total_steps=17, pct_start=0.25), 17),
    "onecycle-still": (sgd, lambda o: OneCycleLR(o, 0.1, total_steps=11, cycle_momentum=False), 11),
    "onecycle-adamw": (adamw, lambda o: OneCycleLR(o, 0.1, total_steps=20, base_momentum=0.7, div_factor=10,
                                                   final_div_factor=100), 20),
}


def loop(case, make, processes, accumulation, split, with_optimizer, skipped, batches, epoch):
    """As AcceleratedScheduler.step() and GradientState do it, around torch's own scheduler."""
    optimizer = sgd(rates=(0.1, 0.1))
    scheduler = make(optimizer)
    steps = 0
    count = 0
    for batch in range(batches):
        last = (batch + 1) % epoch == 0
        count = 0 if last else count + 1
        sync = count % accumulation == 0
        was_skipped = False
        if sync:
            was_skipped = steps in skipped
            steps += 1
            if not was_skipped:
                optimizer.step()
        if not with_optimizer:
            scheduler.step()
        elif not sync:
            scheduler._step_count += 1
        elif not was_skipped:
            for _ in range(1 if split else processes):
                if split or not hasattr(scheduler, "total_steps") or scheduler._step_count <= scheduler.total_steps:
                    scheduler.step()
        row("loop", case, batch, [optimizer.param_groups[0]["lr"], scheduler.last_epoch])


LINEAR = lambda o: LambdaLR(o, linear(4, 40))  # noqa: E731
CYCLE = lambda o: OneCycleLR(o, 0.1, total_steps=20)  # noqa: E731
LOOPS = {
    # processes, accumulation, split batches, step_with_optimizer, skipped optimizer steps, batches, of an epoch
    "linear-1": (LINEAR, 1, 1, False, True, (), 12, 5),
    "linear-2": (LINEAR, 2, 1, False, True, (), 12, 5),
    "linear-3": (LINEAR, 3, 2, False, True, (), 15, 5),
    "linear-2-split": (LINEAR, 2, 1, True, True, (), 12, 5),
    "linear-2-alone": (LINEAR, 2, 3, False, False, (), 12, 5),
    "linear-2-skips": (LINEAR, 2, 2, False, True, (0, 1, 3), 14, 7),
    "onecycle-1": (CYCLE, 1, 1, False, True, (), 25, 100),
    "onecycle-3": (CYCLE, 3, 1, False, True, (), 12, 100),
    "onecycle-2-accumulates": (CYCLE, 2, 3, False, True, (), 30, 100),
}


def trajectory(case, make_optimizer, make_scheduler, steps):
    values = weights()
    optimizer = make_optimizer(values)
    scheduler = make_scheduler(optimizer)
    for step in range(steps):
        for index, value in enumerate(values):
            value.grad = (index + 1) * 0.3 * value.detach() + 0.01 * step
        optimizer.step()
        scheduler.step()
        row("weights", case, step + 1, [w for value in values for w in value.tolist()])


for name, (optimizer_of, make, steps) in SCHEDULES.items():
    rates(name, optimizer_of(), make, steps)
for name, arguments in LOOPS.items():
    loop(name, *arguments)
trajectory("sgd", lambda v: torch.optim.SGD([{"params": [v[0]]}, {"params": [v[1]], "lr": 0.01, "weight_decay": 0.0}], lr=0.1,
                                            momentum=0.9, weight_decay=0.1),
           lambda o: LambdaLR(o, cosine(2, 12)), 12)
trajectory("adamw", lambda v: torch.optim.AdamW([{"params": [v[0]]}, {"params": [v[1]], "lr": 0.01, "weight_decay": 0.0}], lr=0.1,
                                                weight_decay=0.1),
           lambda o: OneCycleLR(o, [0.1, 0.05], total_steps=12), 12)
