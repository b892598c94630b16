#!/usr/bin/env python3
"""A training with Hugging Face's Accelerator, as `accelerate launch` would start it; nothing in it knows of acc-launch.

It accumulates gradients over two batches, clips them, counts over all processes, and goes on from the newest checkpoint. The first
attempt loses process 1 in epoch 3, as the out-of-memory killer would do it.
"""
import argparse
import os
import pathlib
import signal

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


def points(count, seed):
    """Inside of a circle, or outside?"""
    at = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return TensorDataset(at, (at.square().sum(1) > 0.6).long())


def newest(folder):
    """(epoch, its checkpoint), or (0, None). A folder has its last name once all processes have written."""
    done = [int(one.name.removeprefix("epoch_")) for one in folder.glob("epoch_*") if not one.name.endswith(".part")]
    return (max(done), folder / f"epoch_{max(done)}") if done else (0, None)


def main():
    words = argparse.ArgumentParser()
    words.add_argument("--project", type=pathlib.Path, required=True)
    words.add_argument("--epochs", type=int, default=4)
    words.add_argument("--crash-in-epoch", type=int, default=0)
    words = words.parse_args()
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))

    accelerator = Accelerator(gradient_accumulation_steps=2)
    set_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    seen, unseen = DataLoader(points(800, 1), batch_size=16, shuffle=True), DataLoader(points(203, 2), batch_size=32)
    model, optimizer, seen, unseen = accelerator.prepare(model, optimizer, seen, unseen)

    done, checkpoint = newest(words.project)
    if checkpoint:
        accelerator.load_state(str(checkpoint))
    accelerator.print(f"attempt {attempt}: {accelerator.num_processes} processes, after epoch {done}")

    for epoch in range(done + 1, words.epochs + 1):
        model.train()
        for at, kind in seen:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(at), kind)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        if epoch == words.crash_in_epoch and attempt == 0 and accelerator.process_index == 1:
            print(f"process 1: crashing on purpose in epoch {epoch}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        model.eval()
        right = count = 0
        for at, kind in unseen:
            with torch.no_grad():
                judged = model(at).argmax(1)
            judged, kind = accelerator.gather_for_metrics((judged, kind))  # without what fills up the last batch
            right, count = right + int((judged == kind).sum()), count + len(kind)
        accelerator.print(f"epoch {epoch}/{words.epochs}  {right} of {count} right")

        partial = words.project / f"epoch_{epoch}.part"
        accelerator.save_state(str(partial))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            partial.rename(words.project / f"epoch_{epoch}")
    accelerator.print(f"done in attempt {attempt}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
