"""What a service owes for each submission, judged from its own answers and from the workers' diaries (history.py). Pure.

One `Task` is one submission, of a job of one node or of a launch over several. `violations(task, …)` says what is not as promised:
no job lost, doubled or unkillable; the exit code of a job that nothing happened to; workers of two rounds never at once.
"""
import dataclasses

import history

ENDED = ("succeeded", "failed", "stopped")
AGENT_LOST = 70


@dataclasses.dataclass
class Task:
    token: str
    hosts: tuple  # that run it
    planned: int | None = 0  # the exit code; None: runs until it is stopped
    rule: str = "no"
    may_start_again: int = 0  # by the rule
    max_restarts: int = 0  # of the workers, by acc-launch
    id: str | None = None
    accepted: bool | None = None  # None: the answer was lost
    stops: int = 0  # asked for, with or without an answer
    stopped: bool = False  # a stop was accepted before the end
    restarts: int = 0  # asked for
    removed: bool | None = False  # None: asked for, and the answer was lost
    trouble: list = dataclasses.field(default_factory=list)  # what was done to it on purpose
    was_seen_ended: bool = False

    def name(self):
        return f"{self.id or self.token} on {','.join(self.hosts)}"


def most_starts(task):
    """So many workers of one rank may have been started: a restart of an ended job begins all anew, of a running one its workers."""
    by_rule = 1 + (task.may_start_again if task.may_start_again or task.rule == "no" else 10**6)
    return (1 + task.restarts) * by_rule * (1 + task.max_restarts) + task.restarts


def presence(task, jobs):
    """`jobs`: those that the daemon of its host lists with its token."""
    if len(jobs) > 1:
        return [f"doubled: {task.name()} is {len(jobs)} jobs: {[job['id'] for job in jobs]}"]
    if not jobs and task.accepted and task.removed is False:
        return [f"lost: {task.name()} was accepted and is not there"]
    if jobs and task.accepted is False:
        return [f"doubled: {task.token} was refused, and is there as {jobs[0]['id']}"]
    if jobs and task.removed:
        return [f"removed, but there: {task.name()}"]
    return []


def course(task, lives):
    """Of the workers of a job of one node: one rank, a round of its own for each process."""
    found = [f"two at once: {task.name()}: pid {life.pid} found {len(life.overlaps)} others alive" for life in lives if life.overlaps]
    if len(lives) > most_starts(task):
        found.append(f"doubled: {task.name()}: {len(lives)} workers were started, at most {most_starts(task)} may be")
    if task.accepted is False and lives:
        found.append(f"doubled: {task.token} was refused, and ran")
    return found


def outcome(task, job):
    """Of an ended job of one node."""
    found = []
    if job["state"] not in ENDED:
        return [f"unkillable: {task.name()} is {job['state']}: {job.get('reason')}"]
    is_own = not task.trouble and not task.stops and not task.restarts
    if is_own and task.planned is not None:
        expected = (task.planned, "failed" if task.planned else "succeeded")
        starts = 1 if not task.planned or task.rule == "no" else 1 + task.may_start_again
        if (job["exit_code"], job["state"]) != expected or job["starts"] != starts:
            found.append(f"wrong end: {task.name()}: exit code {job['exit_code']}, {job['state']}, {job['starts']} starts; "
                         f"expected {expected[0]}, {expected[1]}, {starts}: {job.get('reason')}")
    if task.stopped and not task.restarts and job["state"] != "stopped":
        found.append(f"wrong end: {task.name()} is {job['state']} ({job['exit_code']}) after a stop that was accepted: {job.get('reason')}")
    if not task.stops and job["state"] == "stopped":
        found.append(f"wrong end: {task.name()} is stopped, which nobody asked for")
    return found


def launch_course(task, lives, settled=10.0):
    """Of the workers of a launch over several nodes."""
    return [f"{task.name()}: {text}" for text in history.violations(lives, settled)] + (
        [f"doubled: {task.name()} was refused, and ran"] if task.accepted is False and lives else [])


def launch_end(task, code):
    """Of the command that started it. `code`: None if it was killed by us."""
    if code is None or task.trouble or task.planned is None:
        return []
    expected = {task.planned} if not task.stops else {task.planned, 143, 130}
    if task.stops > 2:  # a fourth Ctrl-C kills the agent, also one that waits for a node whose daemon is away
        expected.add(AGENT_LOST)
    return [] if code in expected else [f"wrong end: {task.name()}: acc-launch exited with {code}, expected {sorted(expected)}"]
