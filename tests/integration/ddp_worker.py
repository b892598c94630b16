"""A few steps of real PyTorch DistributedDataParallel on CPU (gloo). DDP_KILL=RANK@ROUND kills that rank half-way.
DDP_STEPS: how many; DDP_PAUSE: seconds after each, for tests that break something meanwhile."""
import os, signal, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world, attempt = dist.get_rank(), dist.get_world_size(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kill = os.environ.get("DDP_KILL", "")
for step in range(int(os.environ.get("DDP_STEPS", "6"))):
    if step == 3 and kill in (f"{rank}@{attempt}", f"{rank}@always"):
        print(f"rank {rank} dies at step {step}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    x = torch.full((8, 4), float(rank + 1))
    loss = (model(x) - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and "DDP_PAUSE" in os.environ:
        print(f"step {step} world={world} attempt={attempt}", flush=True)
    time.sleep(float(os.environ.get("DDP_PAUSE", "0")))
same = [torch.zeros_like(model.module.weight) for _ in range(world)]
dist.all_gather(same, model.module.weight.data)
assert all(torch.equal(w, same[0]) for w in same), "ranks disagree"
if rank == 0:
    print(f"trained world={world} attempt={attempt} loss={loss.item():.4f}", flush=True)
dist.destroy_process_group()
# PyTorch 1.13's gloo threads may abort or hang the interpreter while it shuts down; the training is over.
sys.stdout.flush()
os._exit(0)
