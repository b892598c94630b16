"""What a run measures: groups of figures, who takes part in each, units, and how numbers are written."""
import dataclasses
import statistics



@dataclasses.dataclass(frozen=True)
class Figure:
    name: str
    title: str
    unit: str
    is_more_better: bool = False


@dataclasses.dataclass(frozen=True)
class Group:
    name: str
    title: str
    who: tuple  # ours first; columns of the table
    text: str
    figures: tuple
    plots: tuple = ()  # (name, title that stands alone) of figures that are drawn


def size(bytes_):
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes_ >= scale:
            return f"{bytes_ // scale} {unit}"
    return f"{bytes_} B"


OPS = {"barrier": "barrier", "allreduce": "all-reduce", "broadcast": "broadcast", "allgather": "all-gather", "gather": "gather"}
SIZES = {"barrier": (0,), "allreduce": (8, 65536, 1 << 20, 16 << 20), "broadcast": (65536, 16 << 20), "allgather": (65536, 16 << 20), "gather": (65536, 16 << 20)}
COLLECTIVES = tuple(Figure(f"ranks{n}_{op}_{bytes_}", f"{n} ranks: {OPS[op]}" + (f" of {size(bytes_)}" if bytes_ else ""), "µs")
                    for n in (2, 4, 8) for op in OPS for bytes_ in SIZES[op] if n < 8 or op in ("barrier", "allreduce"))

GROUPS = (
    Group("launch", "One node", ("acc-launch", "torchrun", "accelerate", "mpirun", "hydra", "supervisord", "floor (C)"),
          "Workers are a small C program, so that the launcher is what is measured. `mpirun` is Open MPI's, `hydra` MPICH's `mpiexec.hydra`; torchrun polls every 0.1 s "
          "(its own default was 5 s); supervisord restarts the one worker only. The floor is a launcher of some hundred lines of C that does what can't be left out: "
          "vfork, epoll, one signal to each group.",
          (Figure("start_1", "command to the first instruction of 1 worker", "ms"),
           Figure("start_8", "… of the last of 8 workers", "ms"),
           Figure("start_64", "… of the last of 64 workers", "ms"),
           Figure("start_256", "… of the last of 256 workers", "ms"),
           Figure("run_8", "command to its own end, 8 workers that end at once", "ms"),
           Figure("restart_exit", "a worker of 4 exits with 3: to the first instruction of the last of the new ones", "ms"),
           Figure("restart_kill", "a worker of 4 is killed by SIGKILL: the same", "ms"),
           Figure("teardown", "a worker of 4 exits with 3, no restart left: until the others are gone", "ms"),
           Figure("stop", "SIGTERM to the launcher: until its 8 workers are gone", "ms"),
           Figure("left_sigterm", "processes left 1.5 s after SIGTERM ended the launcher (8 workers, a child each)", "processes"),
           Figure("left_sigkill", "processes left 1.5 s after SIGKILL of the launcher", "processes"),
           Figure("memory", "resident memory of the launcher with 8 workers", "MiB"),
           Figure("memory_pss", "… pages shared with others counted in part (PSS)", "MiB"),
           Figure("wakeups", "wake-ups a second while nothing happens", "1/s"),
           Figure("idle_cpu", "processor time in 10 s of idling", "ms"),
           Figure("log_pipe", "prefixed output of 4 workers through pipes (as Python workers have them)", "million lines/s", True),
           Figure("log_memory", "… memory of the launcher meanwhile (peak RSS)", "MiB"),
           Figure("torn_pipe", "… lines torn or lost", "%"),
           Figure("log_pty", "prefixed output of 4 workers through pseudo-terminals (as programs have them; `--pty off`: pipes)", "million lines/s", True),
           Figure("torn_pty", "… lines torn or lost", "%")), (("start_8", "Command to the first instruction of the last of 8 workers"), ("restart_exit", "A worker's death to the last of the 4 new ones"),
            ("memory", "Resident memory of the launcher with 8 workers"), ("log_pipe", "Prefixed output of 4 workers through pipes"))),
    Group("warm", "Warm starts of a PyTorch job", ("acc-launch --preload", "acc-launch", "torchrun", "forkserver", "import alone", "forks alone"),
          "4 workers that import torch. A restart is measured from SIGKILL of a worker after 4 s to the last new worker that has imported torch. `forkserver` is the "
          "standard library's with `set_forkserver_preload`; the forks alone are those of a process that has torch in it.",
          (Figure("warm_start", "command to the last worker that has torch", "ms"),
           Figure("warm_restart", "a worker's death to the last new worker that has torch", "ms"),
           Figure("warm_memory", "memory of idle workers and what is ready for the next ones (PSS)", "MiB")), (("warm_restart", "A worker's death to the last of the 4 new ones that has torch"),)),
    Group("rendezvous", "Rendezvous", ("acc-launch", "acc-launch, TLS", "TCPStore", "elastic", "etcd"),
          "N participants over loopback: from the first connect to the last one that holds its rank (ours), or the key that all wait for (TCPStore, and etcd through its "
          "JSON gateway with its data in memory). `elastic` is torchrun's dynamic rendezvous with a last call of 1 s. Memory is the server process's, for the TCPStore with "
          "the Python that serves it.",
          (Figure("meet_8", "8 have met", "ms"), Figure("meet_32", "32 have met", "ms"), Figure("meet_512", "512 have met", "ms"),
           Figure("meet_2048", "2,048 have met", "ms"), Figure("meet_memory", "the server's memory with 512 (peak RSS)", "MiB")), (("meet_32", "32 participants have met"),)),
    Group("collectives", "Collectives in shared memory", ("acc", "Open MPI", "MPICH", "gloo"),
          "32-bit floats in the runtime library's public calls, with all its checks on; ranks of one machine. A call's time is from the first rank's start to the last one's "
          "end, in batches of calls back to back. gloo is PyTorch's. MPICH polls without yielding: with more ranks than cores each of its calls waits for the scheduler, so "
          "few points must do there. Memory is what a rank's process grows by beside the buffers of the caller.",
          COLLECTIVES + tuple(Figure(f"ranks{n}_memory", f"{n} ranks: memory of a rank beside its buffers", "MiB") for n in (2, 4, 8)) +
          (Figure("exposed", "communication that a backward doesn't hide, 2 ranks, 144 MiB of gradients (of that after backward)", "%"),),
          (("ranks2_allreduce_65536", "All-reduce of 64 KiB, 2 ranks"), ("ranks2_allreduce_16777216", "All-reduce of 16 MiB, 2 ranks"))),
    Group("service", "The service of a node", ("acc-agent", "systemd", "supervisord"),
          "Under a systemd of its own in a container. `acc-ctl submit`, `systemd-run --wait` and `supervisorctl start`; by the servers' own protocols HTTP and XML-RPC.",
          (Figure("submit", "command to the first instruction of a job's program", "ms"),
           Figure("submit_protocol", "… by the server's own protocol", "ms"),
           Figure("list_200", "list of 200 jobs (`acc-ctl ps`), of 200 units (`systemctl list-units`)", "ms"),
           Figure("service_memory", "memory of the idle service (RSS)", "MiB"),
           Figure("service_wakeups", "its wake-ups a second", "1/s")), (("submit", "Command to the first instruction of a job's program"),)),
    Group("hosts", "Several hosts", ("acc-agent", "acc-launch --ssh", "started on each", "mpirun over ssh", "hydra over ssh"),
          "Hosts are network namespaces of this machine with a daemon and an sshd each. `acc-agent` is `acc-launch --hosts` through the daemons; `started on each` is "
          "acc-launch on each host, all let go at once.",
          (Figure("hosts_start", "one command to the last worker's first instruction on 8 hosts", "ms"),
           Figure("hosts_log", "output of 4 workers of another host through a pipe, with start and end", "million lines/s", True),
           Figure("hosts_torn", "… lines of 800,000 torn or lost", "lines")), (("hosts_start", "One command to the last worker's first instruction on 8 hosts"),)),
    Group("hosts_collectives", "Collectives between hosts", ("acc", "Open MPI", "gloo"),
          "Two hosts that are network namespaces of this machine, one rank each, over TCP.",
          (Figure("hosts_allreduce", "all-reduce of 64 MiB", "ms"),)),
    Group("heartbeat", "Heartbeats", ("acc-launch", "from Python", "system call"), "A worker's heartbeat from C++ is a store to shared memory and a look at the coarse clock; beside it the cheapest system call.",
          (Figure("heartbeat", "one heartbeat", "ns"),)),
)
FIGURES = {figure.name: figure for group in GROUPS for figure in group.figures}


def group_of(name):
    return next(group for group in GROUPS if any(figure.name == name for figure in group.figures))


class Data:
    """A run's JSON, asked for medians, spreads and words."""

    def __init__(self, run):
        self.run = run

    def values(self, figure, who):
        return self.run["samples"].get(figure, {}).get(who, [])

    def median(self, figure, who):
        values = self.values(figure, who)
        return statistics.median(values) if values else None

    def spread(self, figure, who):
        """The middle half: quartiles, for fewer than four values the least and the greatest."""
        values = self.values(figure, who)
        if not values:
            return None
        if len(values) < 4:
            return min(values), max(values)
        low, _, high = statistics.quantiles(values, n=4, method="inclusive")
        return low, high

    def ratio(self, figure, who, ours):
        """The peer's number ÷ ours; for what should be more, ours ÷ the peer's: above 1 we are ahead."""
        peer, mine = self.median(figure, who), self.median(figure, ours)
        if not peer or not mine:
            return None
        return mine / peer if FIGURES[figure].is_more_better else peer / mine

    def best_peer(self, figure, ours, who):
        """(ratio ours ÷ best peer, who): below 1 we are ahead, also where more is better."""
        ratios = [(1 / ratio, name) for name in who if (ratio := self.ratio(figure, name, ours))]
        return max(ratios) if ratios else None


def number(value):
    """Two significant digits below ten, three above, with thousands separated: as precise as two runs agree."""
    if value == 0:
        return "0"
    if abs(value) < 0.001:
        return "< 0.001"
    if abs(value) < 10:
        text = f"{value:.2g}"
        return text if "e" not in text else f"{value:.5f}".rstrip("0")
    return f"{float(f'{value:.3g}'):,.0f}"


def cell(data, figure, who):
    """Median, middle half, and how many times ours; or why there is no number."""
    median = data.median(figure, who)
    if median is None:
        if who in data.run["absent"]:
            return "not installed" if data.run["absent"][who] == "not installed" else data.run["absent"][who]
        why = data.run["notes"].get(figure, {}).get(who)
        return f"no figure: {why}".replace("|", "/") if why else "–"
    ours = group_of(figure).who[0]
    low, high = data.spread(figure, who)
    text = f"**{number(median)}**" if who == ours else number(median)
    if number(low) != number(high):
        text += f" ({number(low)}–{number(high)})"
    ratio = data.ratio(figure, who, ours)
    if who != ours and ratio:
        text += f" ×{number(ratio)}"
    return text


def geometric_mean(values):
    return statistics.geometric_mean(values) if values else None
