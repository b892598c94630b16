"""The driver of tests/chaos/daemons/run: keeps a service of five hosts busy and in trouble, and judges it."""
import concurrent.futures, dataclasses, heapq, itertools, os, random, shutil, signal, socket, subprocess, sys, threading, time

import history
import ledger
import troubles
from harness import ACC, SANITIZED, SLACK, own_token, read
from ledger import ENDED
from service import CTL, HISTORY, Service, ask
from test_agent_daemon import plain

HOSTS = "a b c d e"
TIMES = "--dead_after 1s --lease 2s --join_timeout 20s --last_call 500ms --grace 1s --restart_delay 0"
MOST_SINGLES, MOST_LAUNCHES = 10, 3
LINES = 60_000
ROUGH, CALM = 7.0, 5.0  # seconds: troubles begin, and don't
# A stopped reader's bytes, and what the answers hold, come to this much in a daemon; each job that it has listed adds its record,
# its report and their part of an answer (14 KiB measured).
MOST_RSS_KIB, RSS_OF_A_JOB_KIB = 12 << 10, 16
SETTLE = 90.0 * SLACK  # seconds for all that ends by itself, when nothing is wrong any more


class Violation(Exception):
    pass


@dataclasses.dataclass
class Work(ledger.Task):
    kind: str = "single"  # talker: one that writes lines; launch
    client: str = ""  # host of the command of a launch
    workers: int = 1
    fewest: int = 1  # of them that may begin without the others: an elastic launch doesn't wait for a node that joins late
    folder: str = ""
    process: subprocess.Popen | None = None
    killed: bool = False  # the command
    detached: bool = False
    quiet: bool = False  # nobody stops, restarts or removes it before its end was judged
    judged: bool = False
    parts_ended: set = dataclasses.field(default_factory=set)
    answered: bool = False
    began: float = 0.0
    reader: "Reader | None" = None
    disk_was_full: bool = False

    @property
    def places(self):
        return {*self.hosts, self.client} - {""}

    def lives(self):
        return history.load(self.folder)

    def has_begun(self):
        return self.started() >= self.fewest

    def is_complete(self):
        return self.started() >= self.workers

    def started(self):
        return len(history.diaries(self.folder)) if os.path.isdir(self.folder) else 0

    def has_ended(self):
        return self.process is not None and self.process.poll() is not None

    def leaves_parts(self):
        return "part may go on" in self.said() or "part of the job may go on" in self.said()

    def said(self):
        return "".join(read(path) for path in (self.folder + "/stdout", self.folder + "/stderr") if os.path.exists(path))


class Reader(threading.Thread):
    """Follows a job's raw output through a daemon, stops reading for some seconds, and goes on by offset when it is cut off."""

    def __init__(self, path, target, pause):
        super().__init__(daemon=True)
        self.path, self.target, self.pause = path, target, pause
        self.got, self.whole, self.given_up = bytearray(), False, threading.Event()
        self.start()

    def run(self):
        while not self.whole and not self.given_up.is_set():
            try:
                self.once()
            except (OSError, ValueError):
                pass
            time.sleep(0.05)

    def once(self):
        with socket.socket(socket.AF_UNIX) as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.settimeout(20 * SLACK)
            line.connect(self.path)
            line.sendall(f"GET {self.target}&from={len(self.got)} HTTP/1.1\r\nHost: acc\r\nConnection: close\r\n\r\n".encode())
            with line.makefile("rb") as file:
                if b" 200 " not in file.readline():
                    return
                while file.readline().strip():
                    pass
                while size := file.readline():
                    count = int(size, 16)
                    piece = file.read(count)
                    self.got += piece
                    if count == 0:
                        self.whole = True
                        return
                    if len(piece) < count:
                        return
                    file.readline()
                    if self.pause:
                        self.given_up.wait(self.pause)
                        self.pause = 0


class Course:
    def __init__(self, seed, seconds, keep):
        self.seed, self.seconds, self.keep = seed, seconds, keep
        self.random = random.Random(seed)
        self.service = Service(HOSTS)
        self.names = HOSTS.split()
        self.tasks, self.open, self.later = [], {}, []
        self.order = itertools.count()
        self.calls = concurrent.futures.ThreadPoolExecutor(12)
        self.pending = []
        self.events, self.counts, self.most_rss = [], {}, 0
        self.most_jobs, self.too_big = dict.fromkeys(self.names, 0), ""
        self.found = []  # violations
        self.returning = set()  # hosts whose daemon was started and has not been heard yet
        self.lock = threading.Lock()

    # ---- telling ----
    def note(self, text):
        at = time.monotonic() - self.begun
        with self.lock:
            self.events.append(f"{at:8.2f} s  {text}")
            print(self.events[-1], flush=True)

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def after(self, seconds, what):
        heapq.heappush(self.later, (time.monotonic() + seconds, next(self.order), what))

    def call(self, what, *arguments):
        self.pending = [one for one in self.pending if not one.done() or one.exception()]
        self.pending.append(self.calls.submit(what, *arguments))

    # ---- what troubles note ----
    def disturb_starting(self, host, name):
        """A launch that has just been begun may be refused."""
        for task in self.tasks:
            if host in task.places and task.kind == "launch" and not task.is_complete():
                task.trouble.append(name)

    def disk_is_full(self, host):
        """What starts now, for the first time or again, may fail."""
        for task in self.tasks:
            if host not in task.places:
                continue
            task.disk_was_full = True
            if not task.is_complete() or task.rule != "no" or task.restarts:
                task.trouble.append("disk full")

    def disturb_network(self, host, name):
        for task in self.tasks:
            if host in task.places and task.kind == "launch":
                task.trouble.append(name)

    def disturbed_from_the_start(self, task):
        if task.kind == "launch" and self.returning & task.places:
            task.trouble.append("daemon comes back")
        for host, (trouble, _) in self.open.items():
            is_full = isinstance(trouble, troubles.DiskFull)
            if host in task.places and (task.kind == "launch" or is_full):
                task.trouble.append(trouble.name)
                task.disk_was_full |= is_full

    # ---- daemons ----
    def revive(self, host):
        if not self.service.lives(host):
            self.returning.add(host)
            self.service.start(host)

    def look_after_daemons(self):
        """As systemd would: one that ended by itself is started again. It has no reason to, but for a full disk at its start."""
        for host in self.names:
            away = isinstance(self.open.get(host, (None,))[0], (troubles.DaemonKilled, troubles.PowerOff))
            if self.service.lives(host) or away:
                continue
            code, log = self.service.daemons[host].process.returncode, self.service.daemons[host].log
            if not self.is_full(host):
                raise Violation(f"the daemon on {host} ended by itself with {code}: {log[-2000:]}")
            raise Violation(f"the daemon on {host} doesn't start while its disk is full ({code}): {log[-2000:]}")

    def is_full(self, host):
        return isinstance(self.open.get(host, (None,))[0], troubles.DiskFull)

    # ---- work ----
    def new(self, hosts, **more):
        task = Work(own_token(f"t{len(self.tasks)}"), tuple(hosts), **more)
        task.folder = os.path.join(self.service.diaries, f"t{len(self.tasks)}")
        os.mkdir(task.folder)
        os.chmod(task.folder, 0o777)
        task.began = time.monotonic()
        self.disturbed_from_the_start(task)
        self.tasks.append(task)
        return task

    def submit(self):
        dice = self.random
        host = dice.choice(self.names)
        via = host if dice.random() < 0.6 else dice.choice(self.names)
        rule, again = dice.choice((("no", 0), ("no", 0), ("on-failure", 2)))
        planned = dice.choice((0, 0, 4, None))
        kind = "talker" if dice.random() < 0.2 else "single"
        if kind == "talker":
            rule, again, planned = "no", 0, 3
        task = self.new((host,), kind=kind, planned=planned, rule=rule, may_start_again=again, max_restarts=dice.choice((0, 0, 1)) if planned in (0, None) else 0)
        task.quiet = planned is not None and dice.random() < 0.6
        if kind == "talker":
            shell = f'"$0" "$@" run=1ms every=1ms; seq 1 {LINES}; exit 3'
            words = ["run=1ms"]
        else:
            shell = '"$0" "$@"; code=$?; [ $code = 0 ] && exit ' + str(planned or 0) + "; exit $code"
            words = [] if planned is None else [f"run={dice.randrange(20, 2500)}ms"]
        body = {"name": "t", "working_directory": "/", "slots": dice.choice((1, 1, 1, 8)), "wait": True, "user": dice.choice(("root", "alice", "bob")),
                "restart": {"policy": rule, "max": again}, "env": {"HISTORY_DIR": task.folder, "HISTORY_NODE": host},
                "words": ["--cpu", "--num_cpu_threads_per_process", "1", "--num_processes", "1", "--max_restarts", str(task.max_restarts), "--restart_delay", "0",
                          "--grace", "1s", "--no_python", "sh", "-c", "trap '' USR1; export ACC_ROUND=$$; " + shell, HISTORY, task.token, *words]}
        if rule == "no":
            del body["restart"]
        self.call(self.send_submission, task, via, body)

    def at(self, via, host):
        return self.service.path(via), "" if via == host else f"/v1/nodes/{host}"

    def send_submission(self, task, via, body):
        path, prefix = self.at(via, task.hosts[0])
        answer = ask(path, "POST", prefix + "/v1/jobs", body, timeout=40)
        if answer is None:
            task.accepted = False
        elif answer.status == 201:
            if "id" not in answer.json:
                raise Violation(f"a submission was answered with {answer.body!r}")
            task.id, task.accepted = answer.json["id"], True
            if task.kind == "talker":
                task.reader = Reader(path, f"{prefix}/v1/jobs/{task.id}/logs?stream=stdout&format=raw&follow=1", 3.0)
        elif not answer.is_unknown:
            task.accepted = False
        task.answered = True
        self.count(f"submission {answer.status if answer else 'not sent'}")

    def launch(self):
        dice = self.random
        hosts = dice.sample(self.names, dice.randrange(2, 6))
        client = dice.choice(self.names)
        slots = {host: dice.choice((1, 1, 2)) for host in hosts}
        detached = dice.random() < 0.25
        planned = dice.choice((0, 0, None))
        elastic = len(hosts) >= 3 and dice.random() < 0.4
        restarts = dice.choice((0, 3, 20))
        fewest = len(hosts) // 2 + 1 if elastic else len(hosts)
        task = self.new(hosts, kind="launch", client=client, workers=sum(slots.values()), fewest=sum(sorted(slots.values())[:fewest]), planned=planned, max_restarts=restarts, detached=detached)
        task.quiet = planned is not None and dice.random() < 0.7
        words = [] if planned is None else [f"run={dice.randrange(300, 4000)}ms"]
        size = f"{fewest}:{len(hosts)}" if elastic else str(len(hosts))
        flags = f"--hosts {','.join(f'{host}:{n}' for host, n in slots.items())} --cpu --num_cpu_threads_per_process 1 {TIMES} --nnodes {size} --max_restarts {restarts}"
        command = [ACC, *flags.split(), *(["--detach"] if detached else []), "--env", f"HISTORY_DIR={task.folder}", "--no_python",
                   "sh", "-c", 'export HISTORY_NODE=$(hostname); exec "$0" "$@"', HISTORY, task.token, "linger=0s", *words]
        environment = {**os.environ, "ACC_AGENT_SOCKET": self.service.path(client), "HOME": task.folder}
        with open(task.folder + "/stdout", "wb") as out, open(task.folder + "/stderr", "wb") as err:
            task.process = self.service.run(client, command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd="/", start_new_session=True)
        task.answered = True

    def living(self, *kinds):
        return [task for task in self.tasks if task.kind in kinds and not task.was_seen_ended and task.removed is False]

    def look(self):
        """Which have ended, as far as can be told at once."""
        for task in self.tasks:
            if task.kind == "launch":
                if task.has_ended() and not task.judged:
                    self.judge_launch(task)
                task.was_seen_ended |= task.has_ended() and not task.detached
            elif task.accepted is False:
                task.was_seen_ended = True
        for host in self.names:
            if host not in self.open and self.service.lives(host):
                self.call(self.see_ended, host)

    def see_memory(self, host, jobs):
        try:
            rss = self.service.daemons[host].status_of("VmRSS")
        except (OSError, TypeError):
            return
        self.most_rss = max(self.most_rss, rss)
        self.most_jobs[host] = max(self.most_jobs[host], jobs)
        if rss > MOST_RSS_KIB + RSS_OF_A_JOB_KIB * self.most_jobs[host]:
            self.too_big = f"the daemon on {host} had {rss} KiB with {self.most_jobs[host]} jobs"

    def see_ended(self, host):
        listed = self.service.jobs(host)
        if listed is not None:
            self.returning.discard(host)
        jobs = {job["id"]: job for job in listed or []}
        if self.service.lives(host):
            self.see_memory(host, len(jobs))
        for task in self.tasks:
            if task.detached and host in task.hosts:
                if all(job["state"] in ENDED for job in jobs.values() if any(task.token in word for word in job["words"])):
                    task.parts_ended.add(host)
                # The command has ended, so all parts were started, or none is.
                task.was_seen_ended = task.parts_ended == set(task.hosts) and task.has_ended()
            elif host in task.hosts and task.id in jobs and jobs[task.id]["state"] in ENDED and not task.restarts:
                self.judge_end(task, jobs[task.id])
                task.was_seen_ended = True
            elif host in task.hosts and task.id in jobs:
                task.was_seen_ended = jobs[task.id]["state"] in ENDED

    def judge_launch(self, task):
        """Its command has ended: what happens to its hosts from now on is no excuse."""
        task.judged = True
        code, said = task.process.returncode, task.said()
        if code == 1 and "no room" in said:  # also where another job took it after the check
            return self.count("launch refused: no room")
        self.count("launch in trouble" if task.trouble else "launch undisturbed")
        with self.lock:
            self.found += [f"{text}: {said[-3000:]}" for text in ledger.launch_end(task, None if task.killed or task.detached else code)]

    def judge_end(self, task, job):
        """As soon as it is seen: later it may be restarted or removed."""
        if task.judged or task.restarts:
            return
        task.judged = True
        found = ledger.outcome(task, job)
        if not task.trouble and not task.stops:
            self.count("job undisturbed")
        with self.lock:
            self.found += found

    def steer(self):
        """A stop, a signal, a restart or a removal, of a job of one node or of a launch."""
        dice = self.random
        if dice.random() < 0.15 and (some := [task for task in self.living("launch") if not task.quiet]):
            task = dice.choice(some)
            if task.detached:
                return self.call(self.stop_detached, task)
            with_signal = dice.choice((signal.SIGTERM, signal.SIGINT, signal.SIGINT))
            if task.process.poll() is None and task.has_begun():
                task.stops += 1
                self.count("signal to acc-launch")
                task.process.send_signal(with_signal)
            return None
        some = [task for task in self.tasks if task.id and task.kind != "launch" and task.removed is False]
        if not some:
            return None
        task = dice.choice(some[-30:])
        if task.kind == "talker" or task.quiet:
            verb = "remove" if task.was_seen_ended and task.judged and (not task.reader or task.reader.whole) else ""
        else:
            verb = dice.choice(("stop", "stop", "signal USR1", "restart", "remove", "remove"))
        if not verb or (verb == "signal USR1" and not task.has_begun()):  # it would end a worker that isn't prepared for it
            return None
        via = task.hosts[0] if dice.random() < 0.6 else dice.choice(self.names)
        return self.call(self.send_verb, task, via, verb, dice.choice((None, 0, 1)))

    def send_verb(self, task, via, verb, grace):
        path, prefix = self.at(via, task.hosts[0])
        target = f"{prefix}/v1/jobs/{task.id}"
        if verb == "remove":
            was, task.removed = task.removed, None
            answer = ask(path, "DELETE", target, timeout=40)
            if answer is not None and answer.status == 204:
                task.removed = True
            elif was is False and task.removed is None and (answer is None or answer.status == 409):
                task.removed = False  # 404: another one of ours removed it
        else:
            word, _, rest = verb.partition(" ")
            body = {"signal": rest} if rest else {"grace_s": grace} if word == "stop" and grace is not None else {} if word == "stop" else None
            task.stops += word == "stop"
            task.restarts += word == "restart"
            if word == "restart":
                task.was_seen_ended = False
                task.disk_was_full and task.trouble.append("disk full")
            answer = ask(path, "POST", f"{target}/{word}", body, timeout=40)
            if word == "stop" and answer and answer.status == 202:
                task.stopped = True
        self.count(f"{verb.split()[0]} {answer.status if answer else 'not sent'}")

    def stop_detached(self, task):
        id = read(task.folder + "/stdout").strip()
        if not id:
            return
        task.stops += 1
        environment = {**os.environ, "ACC_AGENT_SOCKET": self.service.path(task.client), "HOME": task.folder}
        done = self.service.run(task.client, [CTL, "stop", id], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            done.communicate(timeout=60 * SLACK)
            self.count(f"acc-ctl stop: exit code {done.returncode}")
        except subprocess.TimeoutExpired:
            done.kill()
            done.communicate()
            self.count("acc-ctl stop: no end")

    def kill_command(self):
        """Of a launch: it must take its job with it."""
        if some := [task for task in self.living("launch") if not task.detached and not task.quiet and task.process.poll() is None]:
            task = self.random.choice(some)
            task.killed = True
            task.trouble.append("the command killed")
            task.process.kill()

    # ---- the course ----
    def trouble(self):
        free = [host for host in self.names if host not in self.open]
        if len(self.open) >= 3 or not free:
            return
        host = self.random.choice(free)
        trouble = self.random.choice(troubles.ALL)(self, host)
        self.note(f"{trouble.name} on {host}")
        self.open[host] = trouble, time.monotonic()
        trouble.begin()
        self.count(trouble.name)
        self.after(self.random.choice((0.05, 0.3, 1, 3)), lambda: self.end_trouble(host))

    def end_trouble(self, host):
        trouble, _ = self.open.pop(host)
        trouble.end()
        self.note(f"{trouble.name} on {host} is over")

    def one_step(self):
        dice = self.random.random()
        if dice < 0.30 and len(self.living("single", "talker")) < MOST_SINGLES:
            self.submit()
        elif dice < 0.40 and len(self.living("launch")) < MOST_LAUNCHES:
            self.launch()
        elif dice < 0.60:
            self.steer()
        elif dice < 0.61:
            self.kill_command()
        elif dice < 0.64 and (time.monotonic() - self.begun) % (ROUGH + CALM) < ROUGH:
            self.trouble()

    def run(self):
        self.begun = time.monotonic()
        end = self.begun + self.seconds
        try:
            for host in self.names:
                self.service.start(host)
            self.wait(lambda: all(self.service.answers(host) for host in self.names), "answers of all daemons", 20)
            looked = 0.0
            while time.monotonic() < end:
                while self.later and self.later[0][0] <= time.monotonic():
                    heapq.heappop(self.later)[2]()
                self.look_after_daemons()
                self.one_step()
                if time.monotonic() > looked + 0.5:
                    looked = time.monotonic()
                    self.look()
                    if self.found:
                        raise Violation("\n".join(self.found))
                time.sleep(0.04)
            self.finish()
            return 0
        except Violation as violation:
            self.tell(violation)
            self.keep = True
            return 1
        finally:
            self.close()

    def wait(self, condition, what, seconds):
        end = time.monotonic() + seconds * SLACK
        while not (value := condition()):
            if time.monotonic() > end:
                raise Violation(f"waited {seconds * SLACK:g} s for {what() if callable(what) else what}")
            time.sleep(0.02)
        return value

    def finish(self):
        self.note("the end: no more troubles")
        while self.open:
            self.end_trouble(next(iter(self.open)))
        self.service.hosts.heal()
        for host in self.names:
            self.revive(host)
        self.wait(lambda: all(self.service.answers(host) for host in self.names), "answers of all daemons", 20)
        for call in self.pending:
            call.result(100 * SLACK)
        self.adopt_unanswered()
        self.end_launches()
        self.end_singles()
        self.wait(lambda: not self.service.left(), lambda: f"the end of {self.service.left()}", 30)
        self.judge()
        self.leave_nothing()

    def of_task(self, task, host):
        return [job for job in self.known[host] if any(task.token in word for word in job["words"])]

    def list_all(self):
        self.known = {host: self.wait(lambda: self.service.jobs(host), f"the jobs of {host}", 10) if self.service.jobs(host) != [] else [] for host in self.names}

    def adopt_unanswered(self):
        """A submission whose answer was lost: now it can be seen whether it was carried out."""
        self.list_all()
        for task in self.tasks:
            if task.kind != "launch" and not task.id and (jobs := self.of_task(task, task.hosts[0])):
                task.id = jobs[0]["id"]

    def end_launches(self):
        launches = [task for task in self.tasks if task.kind == "launch"]
        unasked = [task for task in launches if task.planned is None and not task.detached]
        end = time.monotonic() + SETTLE
        while running := [task for task in launches if task.process.poll() is None]:
            if time.monotonic() > end:
                raise Violation("acc-launch doesn't end: " + "; ".join(f"{task.name()} (client {task.client}, pid {task.process.pid}): {task.said()[-1500:]}" for task in running))
            for task in [task for task in running if task in unasked and task.has_begun()]:  # some are slow to begin
                unasked.remove(task)
                task.stops += 1
                task.process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        # What a detached command left, one whose processes were all killed at once, and one that said so: a third Ctrl-C while its daemon was dead.
        self.list_all()
        for task in launches:
            if task.detached or task.leaves_parts() or "power off" in task.trouble or "all processes of a job killed" in task.trouble:
                for host in task.hosts:
                    for job in self.of_task(task, host):
                        if job["state"] not in ENDED and (task.planned is None or task.trouble):
                            task.stops += 1
                            ask(self.service.path(host), "POST", f"/v1/jobs/{job['id']}/stop", {"grace_s": 1})

        def ends():
            self.list_all()
            return not [job["id"] for task in launches for host in task.hosts for job in self.of_task(task, host) if job["state"] not in ENDED]
        self.wait(ends, lambda: "the end of the parts of launches: " + str([(host, job["id"], job["state"], task.trouble) for task in launches for host in task.hosts
                                                                           for job in self.of_task(task, host) if job["state"] not in ENDED]), SETTLE / SLACK)

    def end_singles(self):
        self.list_all()
        for host in self.names:
            for job in self.known[host]:
                task = next((one for one in self.tasks if one.id == job["id"] and host in one.hosts), None)
                if task and job["state"] not in ENDED and (task.planned is None or task.restarts):
                    task.stops += 1
                    answer = ask(self.service.path(host), "POST", f"/v1/jobs/{job['id']}/stop", {"grace_s": 0})
                    task.stopped |= answer is not None and answer.status == 202

        def ends():
            self.list_all()
            return all(job["state"] in ENDED for jobs in self.known.values() for job in jobs)
        self.wait(ends, lambda: "the end of " + "; ".join(self.all_of(host, job) for host, jobs in self.known.items() for job in jobs if job["state"] not in ENDED), 60)

    def all_of(self, host, job):
        """What there is to say of a job that should have ended."""
        task = next((one for one in self.tasks if host in one.hosts and any(one.token in word for word in job["words"])), None)
        processes = self.service.with_token(host, task.token) if task else {}
        return f"{job['id']} on {host}: {job}, processes {processes}, by {'the submission ' + str(task) if task else 'no submission'}"

    def judge(self):
        found, workers, known = list(self.found), 0, set()
        for task in self.tasks:
            lives = task.lives()
            workers += len(lives)
            if task.kind == "launch":
                for host in task.hosts:
                    jobs = self.of_task(task, host)
                    known |= {(host, job["id"]) for job in jobs}
                    if len(jobs) > 1:
                        found.append(f"doubled: {task.token} has {len(jobs)} parts on {host}")
                found += ledger.launch_course(task, lives)
                if not task.judged:
                    self.judge_launch(task)
                    found += self.found
                continue
            jobs = self.of_task(task, task.hosts[0])
            known |= {(task.hosts[0], job["id"]) for job in jobs}
            found += ledger.presence(task, jobs)
            found += ledger.course(task, lives)
            for job in jobs[:1]:
                if not task.judged:
                    found += ledger.outcome(task, job)
            if task.reader and not task.trouble and not task.disk_was_full:
                found += self.read_whole(task)
            if task.reader:
                task.reader.given_up.set()
        for host in self.names:
            found += [f"unknown job {job['id']} on {host}" for job in self.known[host] if (host, job["id"]) not in known]
        if found:
            raise Violation("\n".join(found))
        print(f"no violation: seed {self.seed}, {len(self.tasks)} submissions, {workers} workers, memory of a daemon at most {self.most_rss} KiB; "
              + ", ".join(f"{what}: {count}" for what, count in sorted(self.counts.items())), flush=True)

    def read_whole(self, task):
        task.reader.join(30 * SLACK)
        if not task.reader.whole:
            return [f"lost output: {task.name()}: its reader isn't through: {len(task.reader.got)} bytes"]
        self.count("outputs read whole")
        lines = plain(task.reader.got.decode()).splitlines()
        if lines == [str(i) for i in range(1, LINES + 1)]:
            return []
        return [f"lost output: {task.name()}: {len(lines)} lines, the first {lines[:2]}, the last {lines[-2:]}"]

    def leave_nothing(self):
        """Jobs can be removed, and then nothing is left of them: no folder, descriptor, process."""
        for host in self.names:
            for job in self.known[host]:
                answer = ask(self.service.path(host), "DELETE", f"/v1/jobs/{job['id']}")
                if answer is None or answer.status != 204:
                    raise Violation(f"{job['id']} on {host} can't be removed: {answer and (answer.status, answer.body)}")

        def files(host):
            return [os.path.join(place, name) for place in ("jobs", "trash") if os.path.isdir(at := os.path.join(self.service.disks[host], place)) for name in os.listdir(at)]
        for host in self.names:
            daemon = self.service.daemons[host]
            self.wait(lambda: not files(host), lambda: f"empty folders on {host}: {files(host)}", 20)
            self.wait(lambda: len(os.listdir(f"/proc/{daemon.pid}/fd")) < 32, f"the closing of descriptors on {host}", 30)
            if not SANITIZED and self.too_big:
                raise Violation(self.too_big)
            if (code := daemon.stop()) != 0:
                raise Violation(f"the daemon on {host} ended with {code}: {daemon.log[-2000:]}")
        self.wait(lambda: not self.service.left(), lambda: f"the end of {self.service.left()}", 10)

    def tell(self, violation):
        print("\n".join(f"VIOLATION: {text}" for text in str(violation).splitlines()))
        print(f"again: tests/chaos/daemons/run --seed {self.seed} --seconds {self.seconds:g}", flush=True)

    def close(self):
        for task in self.tasks:
            if task.reader:
                task.reader.given_up.set()
        self.calls.shutdown(wait=False, cancel_futures=True)
        if self.keep:
            folder = f"/tmp/acc-chaos-daemons-{self.seed}-{os.getpid()}"
            os.mkdir(folder)
            shutil.copytree(self.service.diaries, folder + "/diaries", symlinks=True, ignore_dangling_symlinks=True)
            for host, path in self.service.logs:
                if os.path.exists(path):
                    with open(f"{folder}/log.{host}", "a") as log:
                        log.write(f"--- {os.path.basename(path)}\n{read(path)}")
            for host, disk in self.service.disks.items():
                subprocess.run(["cp", "-a", disk, f"{folder}/state.{host}"], check=False, stderr=subprocess.DEVNULL)
            with open(folder + "/events", "w") as file:
                file.write("\n".join(self.events) + "\n" + "\n".join(map(str, self.tasks)) + "\n")
            print(f"kept: {folder}", file=sys.stderr)
        self.service.close()
