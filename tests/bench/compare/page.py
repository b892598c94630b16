"""What a run's samples become: a table on the terminal, docs/benchmarks.md with its plots, and the marked blocks of README.md and docs."""
import json
import os
import re

import plot
from figures import COLLECTIVES, FIGURES, GROUPS, Data, cell, geometric_mean, number

COMMAND = "sudo tests/bench/compare.sh"
BUSY = 0.1  # of the cores: a part with more work of other processes beside it is said to be measured on a busy machine


def as_json(run):
    """With a line for each program of a figure, so that a change can be read."""
    text = json.dumps(run, indent=1, sort_keys=True)
    return re.sub(r"\[\s+([-\d.,e\s]+?)\s+\]", lambda found: "[" + ", ".join(found[1].replace(",", " ").split()) + "]", text) + "\n"


def columns(data, group):
    """Programs that take part: measured, or absent with a reason."""
    return [who for who in group.who if who in data.run["absent"] or any(data.values(f.name, who) for f in group.figures) or
            any(who in data.run["notes"].get(f.name, {}) for f in group.figures)]


def rows_of(data, group):
    return [figure for figure in group.figures if data.run["samples"].get(figure.name)]


def label(data, who):
    """The name with its version, where it is a program's."""
    versions, package = data.run["versions"], {"torchrun": "torch", "accelerate": "accelerate", "mpirun": "Open MPI", "Open MPI": "Open MPI", "hydra": "MPICH", "MPICH": "MPICH",
                                               "supervisord": "supervisord", "etcd": "etcd", "systemd": "systemd", "gloo": "torch", "TCPStore": "torch", "elastic": "torch"}
    version = versions.get(package.get(who))
    if not version:
        return who
    version = ".".join(version.split(".")[:2])
    return f"{who} (torch {version})" if who in ("gloo", "TCPStore", "elastic") else f"{who} {version}"


def is_ours(who):
    return who.startswith("acc") and who != "accelerate" or who == "started on each"


def busy_parts(run):
    cores = run["machine"]["cores"]
    return {name: part for name, part in run["parts"].items() if part["others_cores"] + part["stolen_cores"] > BUSY * cores}


def table(run):
    """For the terminal."""
    data, lines = Data(run), []
    for group in GROUPS:
        figures, who = rows_of(data, group), columns(data, group)
        if not figures:
            continue
        lines += ["", f"{group.title} (medians, middle half of the samples, × {group.who[0]})"]
        for figure in figures:
            lines.append(f"  {figure.title}, {figure.unit}")
            for name in who:
                lines.append(f"    {label(data, name):28} {cell(data, figure.name, name).replace('*', '')}")
    lines.append("")
    if busy := busy_parts(run):
        lines.append(f"THE MACHINE WAS BUSY while these were measured: {', '.join(busy)}")
    return "\n".join(lines)


def machine_lines(run):
    facts, load = run["machine"], run["load"]
    versions = ", ".join(f"{name} {version}" for name, version in sorted(run["versions"].items(), key=lambda one: one[0].lower()) if version)
    absent = sorted(who for who, why in run["absent"].items() if why == "not installed")
    others = max((part["others_cores"] for part in run["parts"].values()), default=0)
    stolen = max((part["stolen_cores"] for part in run["parts"].values()), default=0)
    rows = [("date", run["date"]), ("version", f"{run['version']}" + (f" ({run['commit']})" if run["commit"] else "")),
            ("processor", f"{facts['cpu']}, {facts['cores']} cores" + (", a virtual machine" if facts["is_virtual"] else "")),
            ("memory", f"{facts['memory_gib']} GiB"), ("system", f"{facts['system']}, Linux {facts['kernel']}, {facts['architecture']}"),
            ("peers", versions), ("not installed", ", ".join(absent) or "–"),
            ("load before", f"load average {load['before']['load_average'][0]:.2f}; other processes kept {load['before']['others_cores']:.2f} cores busy"),
            ("load during", f"other processes kept at most {others:.2f} cores busy in a part, the host took at most {stolen:.2f}"),
            ("duration", f"{run['seconds']} s")]
    return ["| | |", "|---|---|"] + [f"| {name} | {what} |" for name, what in rows]


def warnings(run):
    lines = []
    if run["quick"]:
        lines.append("**A smoke test's figures** (`--quick`): one round each, good for nothing but to see that all works.")
    if busy := busy_parts(run):
        lines.append("**The machine was busy** with other work while these parts were measured, and their figures say little beyond the order of magnitude: " +
                     ", ".join(f"{name} ({part['others_cores'] + part['stolen_cores']:.1f} cores)" for name, part in busy.items()) + ".")
    lines += [f"The part {name} ended early: {why}" for name, why in sorted(run["errors"].items())]
    return [line for text in lines for line in (text, "")]


def markdown(run):
    data = Data(run)
    lines = ["# Benchmarks", f"Written by `{COMMAND}` from the samples in [benchmarks.json](benchmarks.json); a test holds this page, its plots and README.md against them. "
             "Ours and the peers were measured by turns in one run on one machine.", ""]
    lines += machine_lines(run) + [""] + warnings(run)
    lines += ["A cell has the median of the samples and in brackets their middle half (of fewer than four: the least and the greatest). × is how many times better the bold "
              "column is: below 1 the peer is ahead. – is what a program doesn't do, or has no figure of its own for. How the figures are taken: "
              "[0046-proof-and-release](decisions/0046-proof-and-release.md).", ""]
    for group in GROUPS:
        figures, who = rows_of(data, group), columns(data, group)
        if not figures:
            continue
        lines += [f"## {group.title}", group.text, ""]
        if plots(data, group):
            lines += [f"![{group.title}: {'; '.join(title for title, _ in plots(data, group))}](benchmarks/{group.name}.svg)", ""]
        lines += ["| figure | " + " | ".join(f"**{label(data, name)}**" if name == group.who[0] else label(data, name) for name in who) + " |", "|---" * (len(who) + 1) + "|"]
        lines += [f"| {figure.title}, {figure.unit} | " + " | ".join(cell(data, figure.name, name) for name in who) + " |" for figure in figures]
        if group.name == "collectives" and (words := collectives_words(data)):
            lines += ["", words]
        lines += [""]
    return "\n".join(lines).rstrip() + "\n"


def plots(data, group):
    """[(title, bars)] of the figures that are drawn and that ours and a peer have."""
    found = []
    for name, title in group.plots:
        figure = FIGURES[name]
        bars = [(label(data, who), is_ours(who), data.median(name, who), data.spread(name, who), f"{number(data.median(name, who))} {figure.unit}")
                for who in group.who if data.values(name, who)]
        if len(bars) > 1:
            found.append((f"{title} ({'more' if figure.is_more_better else 'less'} is better)", bars))
    return found


# ---- blocks of other pages ----
def collectives_ratios(data):
    """{figure: ours ÷ best peer} of all points that a peer has, too."""
    ratios = {figure.name: data.best_peer(figure.name, "acc", ("Open MPI", "MPICH", "gloo")) for figure in COLLECTIVES}
    return {name: found[0] for name, found in ratios.items() if found}


def collectives_words(data):
    ratios = collectives_ratios(data)
    if not ratios:
        return ""
    return (f"Of the {len(ratios)} rows that a peer has: ours ÷ the best peer is {number(geometric_mean(list(ratios.values())))} in the geometric mean, and at worst "
            f"{number(max(ratios.values()))} ({FIGURES[max(ratios, key=ratios.get)].title}).")


def short(data, figure, who):
    """A median alone, for the tables of README."""
    median = data.median(figure, who)
    return "–" if median is None else number(median)


def simple_table(data, names, who, titles=None):
    """Of the programs that have at least one of the figures; docs/benchmarks.md names the others, too."""
    who = [one for one in who if any(data.values(name, one) for name in names)]
    header = ["figure", *((titles or {}).get(name, label(data, name)) for name in who)]
    rows = [[f"{FIGURES[name].title}, {FIGURES[name].unit}", *(short(data, name, one) for one in who)] for name in names if data.run["samples"].get(name)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, *rows]).replace("\n", "\n" + "|---" * len(header) + "|\n", 1)


def block_machine(data):
    facts, busy = data.run["machine"], busy_parts(data.run)
    return (f"Medians of one run of `{COMMAND}` on {data.run['date']} ({facts['cores']} cores, {facts['cpu']}), ours and the peers by turns; spreads, ratios, plots and all other "
            f"figures: [docs/benchmarks.md](docs/benchmarks.md)." + (f" The machine was busy with other work during {len(busy)} of {len(data.run['parts'])} parts." if busy else ""))


def block_launch(data):
    names = ("start_1", "start_8", "start_64", "start_256", "restart_exit", "left_sigkill", "memory", "wakeups", "log_pipe", "log_pty", "torn_pty")
    return simple_table(data, names, ("acc-launch", "torchrun", "accelerate", "mpirun", "hydra", "supervisord", "floor (C)"))


def block_collectives(data):
    names = ("ranks2_barrier_0", "ranks4_barrier_0", "ranks8_barrier_0", "ranks2_allreduce_16777216", "ranks4_allreduce_16777216", "ranks8_memory")
    text = simple_table(data, names, ("acc", "Open MPI", "MPICH", "gloo"), {"acc": "ours"})
    return "\n\n".join(part for part in (collectives_words(data), text) if part)


def block_service(data):
    parts = [simple_table(data, ("submit", "submit_protocol", "list_200", "service_memory", "service_wakeups"), ("acc-agent", "systemd", "supervisord")),
             simple_table(data, ("hosts_start", "hosts_log", "hosts_torn"), ("acc-agent", "acc-launch --ssh", "started on each", "mpirun over ssh", "hydra over ssh"),
                          {"acc-agent": "acc-launch --hosts"})]
    return "\n\n".join(part for part in parts if part.count("\n") > 1)


def block_warm(data):
    return simple_table(data, ("warm_start", "warm_restart", "warm_memory"), ("acc-launch --preload", "acc-launch", "torchrun", "forkserver", "forks alone"))


def block_heartbeat(data):
    took = [data.median("heartbeat", who) for who in ("acc-launch", "from Python", "system call")]
    if None in took:
        return "What it costs was not measured."
    beat, python, call = map(number, took)
    return f"One heartbeat took {beat} ns from C++ and {python} ns from Python in the run of [benchmarks](benchmarks.md), the cheapest system call {call} ns."


BLOCKS = {"machine": block_machine, "launch": block_launch, "collectives": block_collectives, "service": block_service, "warm": block_warm, "heartbeat": block_heartbeat}
BLOCK = re.compile(r"(<!-- benchmarks: (\w+) -->\n)(.*?)(<!-- end -->)", re.S)
PAGES = ("README.md", "docs/worker-socket.md")


def with_blocks(text, run):
    data = Data(run)

    def renewed(found):
        if found[2] not in BLOCKS:
            raise ValueError(f"no block of benchmarks has the name {found[2]}")
        return f"{found[1]}{BLOCKS[found[2]](data)}\n{found[4]}"
    return BLOCK.sub(renewed, text)


def files(run, root):
    """{path: text} of all that is written from a run."""
    data = Data(run)
    found = {"docs/benchmarks.json": as_json(run), "docs/benchmarks.md": markdown(run)}
    for group in GROUPS:
        if panels := plots(data, group):
            found[f"docs/benchmarks/{group.name}.svg"] = plot.svg(group.title, panels)
    for name in PAGES:
        path = os.path.join(root, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                found[name] = with_blocks(file.read(), run)
    return found


def write(run, root):
    wanted = files(json.loads(as_json(run)), root)
    for name, text in wanted.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    folder = os.path.join(root, "docs/benchmarks")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if f"docs/benchmarks/{name}" not in wanted:
            os.remove(os.path.join(folder, name))
    return list(wanted)


def complaints(root):
    """What in the tree differs from what its docs/benchmarks.json gives."""
    with open(os.path.join(root, "docs/benchmarks.json"), encoding="utf-8") as file:
        run = json.load(file)
    found = []
    for name, text in files(run, root).items():
        path = os.path.join(root, name)
        is_there = os.path.exists(path)
        with open(path if is_there else os.devnull, encoding="utf-8") as file:
            if not is_there or file.read() != text:
                found.append(f"{name} is not what docs/benchmarks.json gives: python3 tests/bench/compare --from docs/benchmarks.json --write")
    return found
