"""A rank with heartbeats of Python: hang_worker.py STEPS MILLISECONDS [WHAT=RANK@STEP] [ddp] [any=TOKEN]. With ddp the ranks train a
model of torch's DistributedDataParallel, and meet in its backward. WHAT: sleep (in Python), spin (in the C library of SPIN_LIBRARY,
holding the interpreter's lock), stop (SIGSTOP to itself), skip (waits for something else, while the others meet), section (sleeps in one of
1 s), save (one of 10 min takes 8 s), free (hangs in a section without a time-out), retry (sends heartbeats of this step for ever). ONLY_RANK: no other one sends heartbeats.
HEARTBEAT_AT_END: that of a step is sent at its end."""
import ctypes, os, signal, sys, threading, time

sys.path.insert(0, os.environ["ACC_HEARTBEAT_FOLDER"])
import acc_heartbeat

words = [word for word in sys.argv[1:] if not word.startswith("any=")]
steps, pause = int(words[0]), int(words[1]) / 1000
rank = int(os.environ.get("RANK", "0"))
faults = dict(word.split("=") for word in words[2:] if "=" in word)


def sleep_for_ever():
    while True:
        time.sleep(3600)


def spin_in_c():
    ctypes.PyDLL(os.environ["SPIN_LIBRARY"]).spin_for_ever()


def stop_itself():
    os.kill(os.getpid(), signal.SIGSTOP)


def forget_the_collective():
    threading.Event().wait()


def try_again(step):
    while True:
        acc_heartbeat.heartbeat(step)
        time.sleep(0.1)


def is_due(what, step):
    return os.environ["ACC_ROUND"] == "0" and faults.get(what) == f"{rank}@{step}"


if "ddp" in words:
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(steps):
    if os.environ.get("ONLY_RANK", str(rank)) == str(rank) and "HEARTBEAT_AT_END" not in os.environ:
        acc_heartbeat.heartbeat(step)
    for what, hang in (("sleep", sleep_for_ever), ("spin", spin_in_c), ("stop", stop_itself), ("skip", forget_the_collective)):
        if is_due(what, step):
            hang()
    if is_due("section", step):
        with acc_heartbeat.section("evaluation", timeout=1):
            sleep_for_ever()
    if is_due("save", step):
        with acc_heartbeat.section("checkpoint", timeout=600):
            time.sleep(8)
    if is_due("free", step):
        with acc_heartbeat.section("checkpoint"):
            sleep_for_ever()
    if is_due("retry", step):
        try_again(step)
    time.sleep(pause)
    if "ddp" in words:
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
    if "HEARTBEAT_AT_END" in os.environ:
        acc_heartbeat.heartbeat(step)
acc_heartbeat.checkpoint(steps)
print(f"rank {rank} done", flush=True)
if "ddp" in words:
    os._exit(0)  # on a busy machine torch takes longer to end than a rank may be silent
