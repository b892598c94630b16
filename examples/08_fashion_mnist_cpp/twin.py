#!/usr/bin/env python3
"""The PyTorch DDP twin of train.cpp, for comparison: the same network, batches of the same size, the same schedule.

    acc-launch --num_processes 2 examples/08_fashion_mnist_cpp/twin.py --epochs 3
"""
import argparse
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "02_fashion_mnist"))
from train import accuracy, load, sum_over_ranks  # noqa: E402


def network():
    return nn.Sequential(nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(784, 10))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="over all workers")
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    started = time.monotonic()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    images, labels = load(args.data, "train")
    test_images, test_labels = load(args.data, "t10k")
    steps = len(images) // args.batch_size
    for epoch in range(args.epochs):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1000 + epoch))
        total = 0.0
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = args.lr * (1 - (epoch * steps + step) / (steps * args.epochs))
            batch = order[step * args.batch_size:(step + 1) * args.batch_size][rank::world]
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        mean = sum_over_ranks("loss", total) / steps / world
        score = accuracy(model, test_images, test_labels, rank, world)
        if rank == 0:
            print(f"epoch {epoch + 1}/{args.epochs}  loss {mean:.4f}  test accuracy {score:.4f}  "
                  f"{time.monotonic() - started:.1f} s", flush=True)
    if rank == 0:
        print(f"done: test accuracy {score:.4f} with {world} ranks of PyTorch", flush=True)
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # see 02_fashion_mnist/train.py


if __name__ == "__main__":
    main()
