#!/usr/bin/env python3
"""Trains a small network on Fashion-MNIST with PyTorch DDP: CPU, gloo, any number of workers.

Nothing in here knows the launcher: it reads RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT through init_process_group,
as under torchrun. After each epoch rank 0 saves a checkpoint; a restarted job goes on from the last one.
"""
import argparse
import gzip
import os
import pathlib
import signal
import struct
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

# What the ranks add up lives as long as the process. PyTorch 1.13 may hang at exit if gloo's thread is the last to hold a
# tensor that Python made: it then waits for the interpreter, which waits for that thread.
SUMS = {"loss": torch.zeros(1), "right": torch.zeros(1, dtype=torch.long)}


def sum_over_ranks(name, value):
    SUMS[name].copy_(value)
    dist.all_reduce(SUMS[name])
    return SUMS[name].item()


def read_idx(path):
    """A gzip'ed IDX file of bytes as a tensor: big-endian header (magic, one length per dimension), then the values."""
    with gzip.open(path, "rb") as file:
        magic, = struct.unpack(">I", file.read(4))
        if magic >> 8 != 8:
            raise ValueError(f"{path}: not an IDX file of bytes (magic {magic})")
        shape = struct.unpack(f">{magic & 255}I", file.read(4 * (magic & 255)))
        values = np.frombuffer(file.read(), dtype=np.uint8)
    return torch.from_numpy(values.reshape(shape).copy())


def load(folder, part):
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz").flatten(1).float().div_(255).sub_(0.286).div_(0.353)
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz").long()
    return images, labels


def save(path, state):
    """Whoever reads the checkpoint, also after a crash in here, sees the old one or the new one, never half of one."""
    unfinished = path.with_suffix(".tmp")
    with open(unfinished, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def crash_here(args, epoch, step, steps, rank):
    """Plays the out-of-memory killer: SIGKILL in the middle of an epoch, in the first attempt only."""
    first_attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if first_attempt and rank == args.crash_rank and epoch == args.crash_at_epoch and step == steps // 2:
        print(f"rank {rank}: crashing on purpose in epoch {epoch}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def train_epoch(args, model, optimizer, images, labels, epoch, rank, world):
    """One pass over this rank's share of a shuffle that all ranks draw alike. Returns the mean loss over all ranks."""
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(1000 + epoch))
    steps = len(images) // args.batch_size
    total = 0.0
    for step in range(steps):
        crash_here(args, epoch, step, steps, rank)
        batch = order[step * args.batch_size:(step + 1) * args.batch_size][rank::world]
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()  # DDP averages the gradients over the ranks in here
        optimizer.step()
        total += loss.detach()
    return sum_over_ranks("loss", total) / steps / world


@torch.no_grad()
def accuracy(model, images, labels, rank, world):
    """Each rank tests its share; the sums meet in one all_reduce."""
    right = (model(images[rank::world]).argmax(1) == labels[rank::world]).sum()
    return sum_over_ranks("right", right) / len(images)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--checkpoint", type=pathlib.Path, default=pathlib.Path("fashion_mnist.pt"))
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=256, help="over all workers")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--crash-at-epoch", type=int, default=0, help="0: never; counted from 1")
    parser.add_argument("--crash-rank", type=int, default=1)
    args = parser.parse_args()

    started = time.monotonic()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))

    def say(text):
        if rank == 0:
            print(text, flush=True)

    torch.manual_seed(7)
    network = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(network.parameters(), lr=args.lr, momentum=0.9)
    first_epoch = 1
    if args.checkpoint.exists():
        state = torch.load(args.checkpoint, map_location="cpu")
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        first_epoch = state["epoch"] + 1
        say(f"attempt {attempt}: {world} workers, resuming after epoch {state['epoch']} from {args.checkpoint}")
    else:
        say(f"attempt {attempt}: {world} workers, starting from scratch")
    model = DistributedDataParallel(network)

    images, labels = load(args.data, "train")
    test_images, test_labels = load(args.data, "t10k")
    for epoch in range(first_epoch, args.epochs + 1):
        for group in optimizer.param_groups:
            group["lr"] = args.lr * (1 - (epoch - 1) / args.epochs)
        loss = train_epoch(args, model, optimizer, images, labels, epoch, rank, world)
        if rank == 0:
            save(args.checkpoint, {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch})
        score = accuracy(model, test_images, test_labels, rank, world)
        say(f"epoch {epoch}/{args.epochs}  loss {loss:.4f}  test accuracy {score:.4f}  {time.monotonic() - started:.1f} s")

    score = accuracy(model, test_images, test_labels, rank, world)
    say(f"done: test accuracy {score:.4f} with {world} workers in attempt {attempt}")
    dist.destroy_process_group()
    # PyTorch 1.13's gloo threads may abort or hang the interpreter while it shuts down; the training is over.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
