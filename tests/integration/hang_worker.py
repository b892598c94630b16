"""A rank with heartbeats of Python: hang_worker.py STEPS MILLISECONDS [sleep=RANK@STEP] [ddp] [any=TOKEN]. With ddp the ranks meet in
torch's all_reduce in each step, and the hanging one sleeps outside of it."""
import os, sys, time

sys.path.insert(0, os.environ["ACC_HEARTBEAT_FOLDER"])
import acc_heartbeat

words = [word for word in sys.argv[1:] if not word.startswith("any=")]
steps, pause = int(words[0]), int(words[1]) / 1000
rank = int(os.environ.get("RANK", "0"))
faults = dict(word.split("=") for word in words[2:] if "=" in word)


def sleep_for_ever():
    while True:
        time.sleep(3600)


def is_due(what, step):
    return os.environ["ACC_ROUND"] == "0" and faults.get(what) == f"{rank}@{step}"


if "ddp" in words:
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")

for step in range(steps):
    acc_heartbeat.heartbeat(step)
    if is_due("sleep", step):
        sleep_for_ever()
    if is_due("section", step):
        with acc_heartbeat.section("evaluation", timeout=1):
            sleep_for_ever()
    time.sleep(pause)
    if "ddp" in words:
        dist.all_reduce(torch.ones(4))
acc_heartbeat.checkpoint(steps)
print(f"rank {rank} done", flush=True)
