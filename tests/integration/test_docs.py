#!/usr/bin/env python3
"""test_docs.py [CLASS…]: the commands of README.md and docs/ work as they stand there.

Each ```sh block of a page is run, all blocks of a page in one shell and one scratch folder, as a reader pastes them. The lines of a
```text block right after it must be among what it prints (… stands for anything). A comment before a block says otherwise:
    <!-- not run: why -->      needs a cluster, root, the network: its acc-launch lines are only planned
    <!-- needs: torch -->      left out, aloud, where the machine hasn't that
    <!-- shows a mistake -->   of a user: its flags aren't ours, its exit codes don't matter
Everywhere, also in code spans and in what is shown of other machines, a command of ours has no flag and no verb that its program doesn't know.
"""
import functools, glob, json, os, pathlib, re, shlex, shutil, subprocess, sys, tempfile, unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import markdown
from examples_test import missing, python_with_torch, with_whole_lines
from hosts import Hosts, needs_hosts
from harness import BIN, PATIENCE, SANITIZED, SLACK, main, until

# Pages whose blocks are run by tests of their own.
ELSEWHERE = {"docs/acc-config.md": "test_config.py", "docs/runtime.md": "test_package.py", "docs/worker-socket.md": "test_nodes_frozen.py",
             "examples/README.md": "examples_test.py", "examples/12_cluster/README.md": "test_cluster_walk.py"}
PROGRAMS = ("acc-launch", "acc-test", "acc-ctl", "acc-config", "acc-env", "acc-agent", "acc-rendezvous", "acc-top", "acc")
LIMIT_S = 240
# Flags of other programs that the documents speak of.
FOREIGN = set("""--allow-run-as-root --bind-to --client-cert-auth --gpus-per-task --kill-on-bad-exit --map-by --max_rest --nproc_per --npernode --oversubscribe
    --output-filename --shm-size --use_env --local_rank --log --mem --signal --flag""".split())


def environment():
    return with_whole_lines({**os.environ, "PATH": f"{os.path.abspath(BIN)}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"})


# ---- commands in a text ----

def logical_lines(text):
    """(line number, line) with continued lines joined, prompts and here-documents taken away."""
    ends, start, joined = None, 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if ends is not None:
            # What a here-document holds is checked, too: scripts for sbatch, for example.
            if line.strip() == ends:
                ends = None
                continue
        start = start if joined else number
        joined += line.removesuffix("\\") if line.endswith("\\") else line
        if line.endswith("\\"):
            continue
        if here := re.search(r"<<-?\s*['\"]?(\w+)['\"]?", joined):
            ends = here[1]
        yield start, re.sub(r"^\s*(?:[\w@.-]*[$#] )", "", joined)
        joined = ""


def words_of(line):
    """As a shell splits it, operators apart; what a shell can't read is split at spaces."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>()")
    lexer.whitespace_split, lexer.commenters = True, "#"
    try:
        return list(lexer)
    except ValueError:
        return line.split()


def commands(line):
    """[program, word…] of each command of ours in a line."""
    words = words_of(line)
    for at, word in enumerate(words):
        if os.path.basename(word) not in PROGRAMS:
            continue
        operators = [i for i, one in enumerate(words[:at]) if re.fullmatch(r"[;&|()]+", one)]
        start = words[operators[-1] + 1:] if operators else words
        # There a name of ours is a file, a target or a service.
        if start[0] in {"install", "cp", "scp", "cmake", "man", "which", "systemctl", "journalctl", "apt", "ctest", "./tests/fuzz/run.sh"}:
            continue
        if word == "acc" and (start[0] != "acc" or "find_package" in words):
            continue  # the package: find_package(acc), pkg-config --libs acc
        rest = []
        for one in words[at + 1:]:
            if re.fullmatch(r"[;&|<>()]+", one):
                break
            rest.append(one)
        yield [os.path.basename(word), *rest]


def documented():
    """(page, line, [program, word…], its block or None): fenced and indented blocks, and code spans that begin with a program."""
    for page in markdown.pages():
        text = (markdown.ROOT / page).read_text()
        for block in markdown.blocks(text):
            if block.language in {"sh", "", "console", "bash"}:
                for number, line in logical_lines(block.text):
                    for command in commands(line):
                        yield str(page), block.line + number - 1, command, block
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith("    "):
                for command in commands(re.sub(r"^\s*(?:[\w@-]*[$#] )?", "", line)):
                    yield str(page), number, command, None
        for number, span in markdown.spans(text):
            if span.split(" ")[0] in PROGRAMS and " " in span:
                for command in commands(span.replace("\\|", "|")):
                    yield str(page), number, command, None


# ---- what the programs know ----

@functools.lru_cache(None)
def help_of(*words):
    return subprocess.run([os.path.join(BIN, words[0]), *words[1:], "--help"], capture_output=True, text=True, check=True).stdout


@functools.lru_cache(None)
def flags_of_launch():
    """{flag: takes a value}, from the table that is generated from the program's."""
    rows = re.findall(r"^\| (`-[^|]*?) \|[^|]*\| ((?:[^|\\]|\\.)*?) \|", (markdown.ROOT / "docs/configuration.md").read_text(), re.M)
    flags = {flag: kind != "switch" for names, kind in rows for flag in re.findall(r"`(--?[\w-]+)`", names)}
    flags |= {flag.replace("_", "-").replace("-", "--", 1) if flag.startswith("-") and not flag.startswith("--") else "--" + flag[2:].replace("_", "-"):
              kind for flag, kind in list(flags.items()) if flag.startswith("--")}
    return {**flags, "-h": False, "--help": False, "--version": False}


def program_of(word):
    """Behind a word of acc: a program of ours, or the word itself ("acc merge-weights")."""
    program = "acc-config" if word == "to-fsdp2" else f"acc-{word}"
    return program if program in PROGRAMS else f"acc {word}"


@functools.lru_cache(None)
def flags_of(program):
    if program == "acc-launch":
        return flags_of_launch()
    text = help_of(*program.split(" "))
    flags = {}
    for line in text.splitlines():
        # "  -e, --env NAME", "--socket FILE", "[--port PORT]"
        for flag, value in re.findall(r"(?<![\w-])(--?[a-z][\w-]*)(?:[ =](\[?[A-Z][A-Za-z:\[\]|]*|fsdp2))?", line):
            flags[flag] = flags.get(flag, False) or bool(value)
    if program == "acc-test":
        flags |= flags_of_launch() | dict.fromkeys(("-b", "-e", "-i", "-f", "-n", "-w", "-m", "-o", "-d", "-r", "-c", "-a", "-T", "-R", "-u", "--only"), True)
    return flags


@functools.lru_cache(None)
def verbs_of(program):
    return set(re.findall(r"^  ([a-z][a-z0-9-]+)(?=[ \n])", help_of(program), re.M))


def is_placeholder(word):
    return word in {"…", "...", "FLAGS", "WORD", "VERB"} or word.startswith(("…", "<", "["))


def complaint(command):
    """What is wrong with [program, word…], or None."""
    program, *words = command
    if program == "acc-top":
        program, words = "acc-ctl", ["top", *words]
    if program == "acc":
        if not words or is_placeholder(words[0]) or words[0] in {"--help", "--version", "beside"}:
            return None
        if words[0] not in verbs_of("acc"):
            return None if words[0] in {"tpu-config"} else f"acc has no word {words[0]!r}"
        program = program_of(words[0])
        words = words[1:]
        if program == "acc-top":
            program, words = "acc-ctl", ["top", *words]
    flags, verb, at = flags_of(program), None, 0
    while at < len(words):
        word = words[at]
        at += 1
        if is_placeholder(word):
            return None
        if word == "--":
            return complaint(["acc-launch", *words[at:]]) if program == "acc-ctl" or verb in {"check", "show"} else None
        if word.startswith("-") and len(word) > 1:
            flag, equals, _ = word.partition("=")
            if flag not in flags:
                return f"{program} has no flag {flag}"
            at += flags[flag] and not equals
        elif program in {"acc-launch", "acc-test"}:
            return None  # the script; what follows is its own
        elif verb is None and program in {"acc-ctl", "acc-config"}:
            if word not in verbs_of(program) and not (program == "acc-config" and "to-fsdp2" in command):
                return f"{program} has no verb {word!r}"
            verb = word
    return None


class Flags(unittest.TestCase):
    def test_no_command_has_a_flag_or_verb_that_its_program_does_not_know(self):
        seen, wrong = 0, []
        for page, line, command, block in documented():
            seen += 1
            if block and "shows a mistake" in block.notes:
                continue
            if what := complaint(command):
                wrong.append(f"{page}:{line}: {' '.join(command)}: {what}")
        self.assertGreater(seen, 150)
        self.assertEqual(wrong, [])

    def test_no_flag_in_a_code_span_is_unknown_to_all_programs(self):
        programs = {*PROGRAMS, *map(program_of, verbs_of("acc"))} - {"acc", "acc-top"}
        known = FOREIGN.union(*map(flags_of, programs))
        seen, wrong = 0, []
        for page in markdown.pages():
            if page.parts[0] == "examples":
                continue  # their scripts have flags of their own
            for line, span in markdown.spans((markdown.ROOT / page).read_text()):
                for flag in re.findall(r"(?<![\w-])--[A-Za-z][\w-]*", span) if span.startswith("--") else ():
                    seen += 1
                    if flag not in known:
                        wrong.append(f"{page}:{line}: {flag}")
        self.assertGreater(seen, 200)
        self.assertEqual(wrong, [])

    def test_the_rule_itself_sees_wrong_commands(self):
        for line in ("acc-launch --num_proceses 2 x.py", "acc-ctl pz", "acc-ctl stop --graze 5 ID", "acc-config convrt", "acc lunch x.py",
                     "srun -N 2 acc-launch --max_restart 3 x.py", "A=1 acc-agent --stat-dir x", "acc-ctl submit -- --num_proc 2 x.py"):
            found = [complaint(command) for command in commands(line)]
            self.assertEqual(len(found), 1, line)
            self.assertTrue(found[0], line)
        for line in ("acc-launch --num-processes=2 x.py --any flag", "acc-ctl --node b ps", "acc launch --cpu x.py | grep --word", "acc-top ID",
                     "acc-config check a.yaml -- --num_processes 2", "acc-test -T 60 --num_processes 2", "acc-config convert -- mpirun -np 2 a"):
            self.assertEqual([complaint(command) for command in commands(line)], [None], line)

    def test_lines_that_are_not_run_are_understood(self):
        """acc-launch plans them; what only this machine lacks (a host, a script) is no complaint."""
        planned = 0
        with tempfile.TemporaryDirectory() as folder:
            env = {**environment(), "HOME": folder, "XDG_RUNTIME_DIR": folder}
            secret = os.path.join(folder, "secret")
            subprocess.run(["acc-launch", "--make_secret", secret], env=env, check=True, capture_output=True)
            for name in ("train.py", "t.py", "solver", "hosts"):
                pathlib.Path(folder, name).write_text("#!/bin/sh\n" if name != "hosts" else "node1 slots=8\nnode2 slots=8\n")
                os.chmod(os.path.join(folder, name), 0o755)
            facts = os.path.join(folder, "facts.json")  # of a machine that can do all that the documents show
            pathlib.Path(facts).write_text('{"gpus": 8, "fp8": true, "mpi": "openmpi", "deepspeed": "0.15.0"}')
            for page, line, command, block in documented():
                if command[0] != "acc-launch" or len(command) < 3 or any(word.startswith(("…", "...", "$")) or word.isupper() for word in command):
                    continue
                if block and ("shows a mistake" in block.notes or block.language == "sh" and block.note("not run") is None):
                    continue  # its exit code is seen when it is run
                if any(word.lstrip("-").replace("-", "_") in {"make_secret", "version", "help", "print_config", "config_file", "life_line"} for word in command):
                    continue
                done = subprocess.run(["acc-launch", "--host_facts", facts, "--print_plan", *command[1:]], capture_output=True, text=True, cwd=folder, timeout=60 * SLACK,
                                      env={**env, "ACC_SECRET_FILE": secret}, stdin=subprocess.DEVNULL)
                planned += 1
                if "no acc-agent answers here" in done.stderr or block is None and "several machines need the main process IP" in done.stderr:
                    continue  # that is there, or a scheduler says it
                self.assertNotEqual(done.returncode, 2, f"{page}:{line}: {' '.join(command)}: {done.stderr}")
        self.assertGreater(planned, 15)


class Steering(unittest.TestCase):
    """Each command of acc-ctl in the documents, sent to a daemon with a job of its own. What has other nodes or an answer that isn't yes is refused,
    but not as a mistake of the command line."""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.env = {**environment(), "HOME": self.folder, "XDG_RUNTIME_DIR": self.folder, "XDG_STATE_HOME": self.folder, "TERM": "dumb"}
        daemon = subprocess.Popen([os.path.join(BIN, "acc-agent"), "--state-dir", os.path.join(self.folder, "agent"), "--slots", "64", "--log-level", "error"],
                                  env=self.env)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.terminate)
        self.env["ACC_AGENT_SOCKET"] = os.path.join(self.folder, "agent/agent.sock")
        until(lambda: os.path.exists(self.env["ACC_AGENT_SOCKET"]), "the daemon's socket")
        self.addCleanup(self.end_jobs)  # they live on without the daemon, and write into its folder

    def end_jobs(self):
        """Those of this daemon: the list has the plain launches of this user, too, which are other tests' or somebody's training."""
        def running():
            return [job["id"] for job in json.loads(self.ctl("ps", "--json").stdout)["jobs"]
                    if job["source"] != "acc-launch" and job["state"] in {"waiting", "running", "stopping"}]
        for job in running():
            self.ctl("stop", "--grace", "0", job)
        until(lambda: not running(), "the end of all jobs", 30)

    def ctl(self, *words):
        return subprocess.run(["acc-ctl", *words], capture_output=True, text=True, env=self.env, cwd=self.folder, stdin=subprocess.DEVNULL, timeout=60 * PATIENCE)

    def test_each_command_of_acc_ctl_is_accepted(self):
        seen = {}
        for page, line, command, block in documented():
            if block is not None and "shows a mistake" in block.notes:
                continue
            if command[0] != "acc-ctl" or "top" in command or "submit" in command and "--" not in command or any(word in {"…", "..."} for word in command):
                continue
            seen.setdefault(tuple(command[1:]), f"{page}:{line}")
        pathlib.Path(self.folder, "train.py").write_text("import time; time.sleep(1)\n")
        self.assertGreater(len(seen), 20)
        for words, where in seen.items():
            if not words or words[0] in {"/agent/agent.sock", "--socket"}:
                continue
            job = self.ctl("submit", "--detach", "--wait", "--", "--num_processes", "1", "--no_python", "sleep", "1")
            self.assertEqual(job.returncode, 0, job.stderr)
            filled = [job.stdout.strip() if word.rstrip("…") in {"ID", "[ID]", "$job", "fine"} else word.strip("'") for word in words]
            if filled[0] in {"status", "logs", "attach", "stop", "stacks", "restart", "rm", "signal"} and not any(job.stdout.strip() in word for word in filled):
                filled += ["USR1"] * (filled[0] == "signal") + [job.stdout.strip()]
            with self.subTest(where=where, words=filled):
                done = self.ctl(*filled)
                self.assertNotEqual(done.returncode, 2, done.stderr)
                self.assertNotEqual(done.returncode, 4, done.stderr)


@needs_hosts
class Machines(unittest.TestCase):
    """What is shown of several machines (`node1$ acc-launch …`) forms a job on hosts of these names, each in a network of its own."""

    # Blocks that need what tests of their own set up.
    NOT_HERE = {"--hosts": "test_hosts_launch.py, systemd/two_nodes_test.sh", "etcd": "test_etcd_nodes.py", "--make_secret": "setUp"}

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        os.chmod(self.folder, 0o755)
        self.hosts = self.enterContext(Hosts("node1 node2 node3 head"))
        for host in self.hosts.names:
            self.hosts.hosts_entry(host, {name: self.hosts.address(name) for name in self.hosts.names})
        # A home that all machines share, with the secret that the documents make there.
        self.env = {**environment(), "HOME": self.folder, "XDG_CONFIG_HOME": os.path.join(self.folder, "config"), "XDG_RUNTIME_DIR": self.folder}
        subprocess.run(["acc-launch", "--make_secret"], env=self.env, check=True, capture_output=True)
        self.env.pop("XDG_RUNTIME_DIR")  # one for each machine
        pathlib.Path(self.folder, "train.py").write_text('import os\nprint("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])\n')

    def shown(self):
        """(where, {host: [program, word…]}) of each block: of one that shows one machine's line alone the others type the same, with their own rank."""
        for page in markdown.pages():
            for block in markdown.blocks((markdown.ROOT / page).read_text()):
                lines = {}
                for line in block.text.splitlines():
                    if typed := re.fullmatch(r"(node\d|head)\$ (acc-(?:launch|rendezvous) .*)", line):
                        lines.setdefault(typed[1], words_of(typed[2]))
                    elif block.language == "sh" and block.note("not run") == "several machines" and line.startswith("acc-launch "):
                        yield f"{page}:{block.line}", {"node1": words_of(line)}
                if lines and not any(word in " ".join(sum(lines.values(), [])) for word in self.NOT_HERE):
                    yield f"{page}:{block.line}", lines

    def test_each_line_forms_a_job(self):
        seen = 0
        for where, lines in self.shown():
            seen += 1
            launch = lines["node1"]
            nnodes = int(launch[launch.index("--nnodes") + 1].split(":")[0])
            for number in range(2, nnodes + 1):
                rank = [str(number - 1) if before == "--node-rank" else word for before, word in zip(["", *launch], launch)]
                lines.setdefault(f"node{number}", rank)
            lines = {host: words for host, words in lines.items() if host == "head" or int(host[4:]) <= nnodes}
            with self.subTest(where=where):
                self.check(lines, launch, nnodes)
        self.assertGreater(seen, 4)

    def check(self, lines, launch, nnodes):
        here = {"env": self.env, "cwd": self.folder, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        started = {}
        try:
            for host, words in lines.items():  # GPUs are none here
                started[host] = self.hosts.run(host, ["2" if word == "gpu" else word for word in words], **here)
            said = {host: process.communicate(timeout=90 * SLACK)[0] for host, process in started.items() if host != "head"}
        finally:
            for process in started.values():
                process.terminate()
                process.wait(30 * SLACK)
                process.stdout.close()
        self.assertEqual({host: started[host].returncode for host in said}, dict.fromkeys(said, 0), said)
        each = launch[launch.index("--nproc-per-node") + 1]
        size = nnodes * int("2" if each == "gpu" else each)
        ranks = [line for text in said.values() for line in text.splitlines() if line.startswith("rank ")]
        self.assertEqual(sorted(ranks), sorted(f"rank {rank} of {size}" for rank in range(size)), said)


# ---- pages ----

class Pages(unittest.TestCase):
    def test_each_block_says_why_it_is_not_run(self):
        for page in markdown.pages():
            text = (markdown.ROOT / page).read_text()
            for block in markdown.blocks(text):
                if (reason := block.note("not run")) is not None:
                    self.assertGreater(len(reason), 8, f"{page}:{block.line}")

    def run_page(self, page):
        """All of its blocks in one shell. Returns what was left out."""
        left_out, script, run = set(), "", []
        blocks = [block for block in markdown.blocks((markdown.ROOT / page).read_text()) if block.language == "sh" and block.note("not run") is None]
        needs = {one for block in blocks for one in (block.note("needs") or "").split()}
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        have = {one: NEEDS[one](folder) for one in needs}
        for block in blocks:
            lacking = {one for one in (block.note("needs") or "").split() if not have[one]}
            if lacking:
                left_out |= lacking
                continue
            is_mistake = "shows a mistake" in block.notes
            script += f"echo '@@ {len(run)}'\n" + (f"set +e\n{block.text}set -e\n" if is_mistake else block.text)
            run.append(block)
        self.assertTrue(run or left_out, f"{page} has no block that is run")
        env = environment()
        for found in have.values():
            env |= found or {}
        home, work = folder / "home", folder / "work"
        home.mkdir(), work.mkdir()
        env |= {"HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
        done = subprocess.run(["bash", "-eu", "-o", "pipefail", "-c", script], cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT_S * SLACK)
        printed = re.split(r"^@@ \d+\n", done.stdout.decode(errors="replace"), flags=re.M)[1:]
        self.assertEqual(done.returncode, 0, f"{page}:{run[len(printed) - 1].line}: {printed[-1]}")
        for block, text in zip(run, printed):
            self.assertEqual(missing(block.output.splitlines(), text.splitlines()), [], f"{page}:{block.line}: not printed; but this was:\n{text}")
        return left_out


def _program(name):
    return lambda folder: {"ACC_DOCS_TEST": "1"} if shutil.which(name) else None


def _torch(folder):
    python = python_with_torch()
    return {"PYTHON_EXEC": python} if python else None


def _libacc_dev(folder):
    """What the package would install, of a build that has it all. Sanitized libraries ask for sanitized programs."""
    if SANITIZED:
        return None
    build, prefix = pathlib.Path(BIN).resolve().parent, folder / "usr"
    for component in ("libacc", "libacc-dev"):
        done = subprocess.run(["cmake", "--install", build, "--prefix", prefix, "--component", component], capture_output=True, text=True)
        if done.returncode != 0:
            return None
    library = next(prefix.rglob("libacc.so")).parent
    return {"CMAKE_PREFIX_PATH": str(prefix), "PKG_CONFIG_PATH": str(library / "pkgconfig"), "LD_LIBRARY_PATH": str(library)}


# What a block may need: (scratch folder) -> variables that its commands get, or None where the machine hasn't it.
NEEDS = {"no-gpu": lambda folder: None if glob.glob("/dev/nvidia[0-9]*") else {"ACC_DOCS_TEST": "1"}, "torch": _torch, "libacc-dev": _libacc_dev, "compiler": _program("c++"), "cmake": _program("cmake"), "pkg-config": _program("pkg-config"),
         "curl": _program("curl"), "jq": _program("jq")}


def _add_pages():
    for page in markdown.pages():
        if str(page) in ELSEWHERE:
            continue
        found = [block for block in markdown.blocks((markdown.ROOT / page).read_text()) if block.language == "sh"]
        if all(block.note("not run") is not None for block in found):
            continue

        def test(self, page=page):
            if left_out := self.run_page(page):
                self.skipTest(f"the rest of {page} works; left out, as there is no {', '.join(sorted(left_out))}")
        setattr(Pages, f"test_{page.stem.lower().replace('-', '_')}_works_when_pasted", test)


_add_pages()

if __name__ == "__main__":
    main()
