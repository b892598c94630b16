#!/usr/bin/env python3
"""Collectives of PyTorch's gloo, measured as acc-bench-collectives measures ours (see collectives_mpi.c for the rule).

    collectives_gloo.py RANKS BUDGET_MS barrier allreduce:65536 …

One JSON line for each point, printed by rank 0; the ranks are forked from here once torch is imported.
"""
import json, os, socket, sys, time

LARGE, MOST_BATCHES = 1 << 20, 200


def peak_kb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def rank_main(rank, ranks, port, budget_ms, points):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    most = max(size for _, size in points) // 4 + 1024
    source, target = torch.zeros(most), torch.zeros(most)
    before = peak_kb()
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)

    def prepared(op, size):
        count, share = size // 4, size // 4 // ranks
        whole, mine = source[:count], source[:share]
        parts = [target[r * share:(r + 1) * share] for r in range(ranks)]
        return {"barrier": dist.barrier, "allreduce": lambda: dist.all_reduce(whole), "broadcast": lambda: dist.broadcast(whole, 0),
                "allgather": lambda: dist.all_gather(parts, mine), "gather": lambda: dist.gather(mine, parts if rank == 0 else None, 0)}[op]

    def batch(call, calls):
        dist.barrier()
        begun = time.monotonic()
        for _ in range(calls):
            call()
        edge = torch.tensor([-begun, time.monotonic()], dtype=torch.float64)
        dist.all_reduce(edge, op=dist.ReduceOp.MAX)  # one machine, one clock
        return float(edge.sum()) * 1e6 / calls

    def value(r, count):
        return ((torch.arange(count) * 7 + r * 13) % 31).float()

    def wrong_results(op, size, call):
        count, share = size // 4, size // 4 // ranks
        source[:count] = value(rank, count)
        target[:] = -1
        call()
        wrong = 0
        if op == "allreduce":
            wrong = int((source[:count] != sum(value(r, count) for r in range(ranks))).sum())
        elif op == "broadcast":
            wrong = int((source[:count] != value(0, count)).sum())
        elif op == "allgather" or op == "gather" and rank == 0:
            wrong = sum(int((target[r * share:(r + 1) * share] != value(r, share)).sum()) for r in range(ranks))
        source[:] = 0
        total = torch.tensor([wrong])
        dist.all_reduce(total)
        return int(total)

    for op, size in points:
        call = prepared(op, size)
        wrong = wrong_results(op, size, call)
        batch(call, 1)
        estimate = max(0.2, batch(call, 1 if size >= LARGE else 5))
        calls = 1 if size >= LARGE else int(min(max(4000 / estimate, 1), 2000))
        took = sorted(batch(call, calls) for _ in range(int(min(max(budget_ms * 1000 / (estimate * calls), 3), MOST_BATCHES))))
        if rank == 0:
            print(json.dumps({"op": op, "bytes": size, "ranks": ranks, "lat_us_median": took[len(took) // 2], "wrong": wrong}), flush=True)
    grown = torch.tensor([peak_kb() - before])
    dist.all_reduce(grown, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"op": "rss", "bytes": 0, "ranks": ranks, "rss_over_buffers_kb_max": int(grown)}), flush=True)
    dist.barrier()


def main():
    ranks, budget_ms = int(sys.argv[1]), float(sys.argv[2])
    points = [(op, int(size or 0)) for op, _, size in (word.partition(":") for word in sys.argv[3:])]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    import torch.distributed  # noqa: F401 - before the fork, so that it is loaded once
    children = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                rank_main(rank, ranks, port, budget_ms, points)
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        children.append(pid)
    sys.exit(1 if any([os.waitpid(pid, 0)[1] for pid in children]) else 0)


if __name__ == "__main__":
    main()
