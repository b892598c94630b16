"""Proves from the workers' own diaries (tests/support/history_worker.cpp) what the job promised. Standard library only.

P1: no process of one round lives at or after the first instruction of a later round. Two witnesses: the stamps (a process is
known to have lived until its last one), and the lock that the kernel holds for each process exactly as long as it lives.
P3: the ranks of a round are a bijection onto 0..world-1, in one block per node, and all its workers were told the same.

    history.py FOLDER      the violations and the story of a folder of diaries; exit code 1 if there is a violation
"""
import collections, dataclasses, os, sys

SECOND = 1_000_000_000


@dataclasses.dataclass
class Life:
    """One worker process. Times in nanoseconds of the machine's monotonic clock."""
    node: str
    round: int
    rank: int
    world: int
    local: int
    node_rank: int
    nodes: int
    pid: int
    restarts: int
    master: str
    port: str
    start: int
    last: int
    end: str = ""  # "done", "crash", "signal"; empty: killed, or alive still
    overlaps: tuple = ()
    signals: tuple = ()  # (time, number)
    writes: tuple = ()  # times at which it might make a checkpoint valid

    def name(self):
        return f"rank {self.rank} of round {self.round} (node {self.node}, pid {self.pid})"


def read_life(path, most=-1):
    """None if it was killed before its first line. `most`: bytes to read; the first line has a few hundred."""
    life = None
    with open(path) as f:
        for line in f.read(most).split("\n")[:-1]:  # a killed writer's last line may be torn
            word, at, *rest = line.split()
            at = int(at)
            if word == "start":
                facts = dict(fact.split("=", 1) for fact in rest)
                numbers = {key: int(facts[key].replace("-", "0")) for key in ("round", "rank", "world", "local", "node_rank", "nodes", "pid", "restarts")}
                life = Life(node=facts["node"], master=facts["master"], port=facts["port"], start=at, last=at, **numbers)
                continue
            life.last = max(life.last, at)
            if word == "overlap":
                life.overlaps = tuple(map(int, rest))
            elif word == "signal":
                life.signals += ((at, int(rest[0])),)
            elif word == "wrote":
                life.writes += (at,)
            elif word == "end":
                life.end = rest[0]
    return life


def diaries(folder):
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.startswith("log."))


def load(folder):
    return [life for life in map(read_life, diaries(folder)) if life]


def by_round(lives):
    rounds = collections.defaultdict(list)
    for life in lives:
        rounds[life.round].append(life)
    return dict(sorted(rounds.items()))


def overlaps(lives):
    """P1."""
    found = []
    survivor = None  # of all earlier rounds: the one that is known to have lived longest
    for members in by_round(lives).values():
        first = min(members, key=lambda life: life.start)
        if survivor and survivor.last >= first.start:
            found.append(f"P1: {survivor.name()} lived {(survivor.last - first.start) / 1e6:.1f} ms after the first instruction of {first.name()}")
        survivor = max(members + [survivor] * bool(survivor), key=lambda life: life.last)
        found += [f"P1: at the first instruction of {life.name()} a process of round {other} was alive" for life in members for other in life.overlaps]
    return found


def stale_writes(lives):
    """P1 at the resource: no checkpoint of a round becomes valid once a later one has begun."""
    begun = {number: min(life.start for life in members) for number, members in by_round(lives).items()}
    found = []
    for life in lives:
        later = [at for number, at in begun.items() if number > life.round]
        if later and any(at >= min(later) for at in life.writes):
            found.append(f"P1: {life.name()} made a checkpoint valid {(max(life.writes) - min(later)) / 1e6:.1f} ms after a later round had begun")
    return found


def without_pauses(lives, paused):
    """`paused`: {pid: nanoseconds} of workers on a machine that was paused with its clocks. That they run for a moment when it wakes
    up is no overlap: what they do to checkpoints counts."""
    rounds = {life.round for life in lives if life.pid in paused}
    return [dataclasses.replace(life, last=min(life.last, paused.get(life.pid, life.last)), overlaps=tuple(set(life.overlaps) - rounds)) for life in lives]


def not_a_bijection(members, settled):
    """P3 of one round. `settled`: seconds after which every rank must have started."""
    number, found = members[0].round, []
    ranks = collections.Counter(life.rank for life in members)
    found += [f"rank {rank} started {count} times" for rank, count in sorted(ranks.items()) if count > 1]
    for what in ("world", "nodes", "master", "port", "restarts"):
        values = {getattr(life, what): life for life in members}
        if len(values) > 1:
            found.append(f"{what} differs: " + ", ".join(f"{value} for {life.name()}" for value, life in sorted(values.items())))
    world = members[0].world
    found += [f"rank {rank} of {world}" for rank in ranks if not 0 <= rank < world]
    span = max(life.last for life in members) - min(life.start for life in members)
    missing = sorted(set(range(world)) - set(ranks))
    if missing and span > settled * SECOND:
        found.append(f"ranks {missing} never started in {span / SECOND:.1f} s")
    blocks = collections.defaultdict(list)
    for life in members:
        blocks[life.node].append(life)
    places = collections.defaultdict(set)
    for node, of_node in blocks.items():
        firsts = {life.rank - life.local for life in of_node}
        if len(firsts) > 1:
            found.append(f"ranks of node {node} are not one block: " + ", ".join(f"{life.rank} is local {life.local}" for life in of_node))
        for life in of_node:
            places[life.node_rank].add(node)
    found += [f"node rank {place} is held by {' and '.join(sorted(nodes))}" for place, nodes in sorted(places.items()) if len(nodes) > 1]
    order = sorted((life.node_rank, life.rank) for life in members)
    if [rank for _, rank in order] != sorted(rank for _, rank in order):
        found.append("ranks do not follow the order of the nodes")
    return [f"P3: round {number}: {what}" for what in found]


def restarts_go_back(lives):
    found, highest = [], None
    for members in by_round(lives).values():
        life = members[0]
        if highest and life.restarts < highest.restarts:
            found.append(f"restarts: {life.name()} was told {life.restarts}, {highest.name()} already {highest.restarts}")
        highest = life if not highest or life.restarts > highest.restarts else highest
    return found


def violations(lives, settled=10.0, paused={}):
    found = overlaps(without_pauses(lives, paused)) + stale_writes(lives) + restarts_go_back(lives)
    for members in by_round(lives).values():
        found += not_a_bijection(members, settled)
    return found


def story(lives, events=()):
    """What happened, line by line, in seconds since the first start. `events`: [(nanoseconds, text)] of others."""
    if not lives:
        return "no worker ever started"
    zero = min([life.start for life in lives] + [at for at, _ in events])
    lines = [(at, f"    {text}") for at, text in events]
    for number, members in by_round(lives).items():
        nodes = collections.defaultdict(list)
        for life in members:
            nodes[life.node].append(life)
        lines.append((min(life.start for life in members), f"round {number} begins: world {members[0].world}, restarts {members[0].restarts}, "
                      f"master {members[0].master}:{members[0].port}"))
        for node, of_node in nodes.items():
            ranks = ",".join(str(life.rank) for life in sorted(of_node, key=lambda life: life.rank))
            lines.append((max(life.start for life in of_node), f"  {node}: ranks {ranks} started"))
            ends = collections.Counter(life.end or "silence" for life in of_node)
            lines.append((max(life.last for life in of_node), f"  {node}: ranks {ranks} of round {number} last seen ({', '.join(sorted(ends))})"))
    return "\n".join(f"{(at - zero) / SECOND:9.3f} s  {text}" for at, text in sorted(lines, key=lambda line: line[0]))


def main():
    lives = load(sys.argv[1])
    found = violations(lives)
    print(story(lives))
    print("\n".join(found) or f"no violation: {len(lives)} workers in {len(by_round(lives))} rounds")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
