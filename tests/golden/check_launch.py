#!/usr/bin/env python3
"""Holds acc-launch against recorded launch cases (see accelerate/README.md for the fields).

    check_launch.py --acc-launch PATH [--run] [--only WORD] [-v] CASE_DIR...

Default: the plan. Each case runs `acc-launch --print_plan --host_facts FACTS.json ARGV...` in a fresh HOME, which is
also the working directory, and compares the JSON that it prints:
    {"kind", "env", "command", "launch", "defaulted"}           names and meanings as in the README's `expect`
FACTS.json is the case's `hardware` object. Error cases must exit with the recorded code class (2 = bad usage, else
any other non-zero), print the recorded words on stderr and no traceback, and start nothing.
--run: cases that record real starts (`worker_env`, or kind `process` with `worker_argv`) are launched for real, one at a
time (fixed ports), with the same --host_facts. A worker that our launcher killed before it could write its dump is not
missed where the round failed; where the script exits with 7, so must the launcher.
Exit 0 if every case holds. The last line is `N passed, M failed`.

Deliberate deviations, checked as such:
  D1 N workers are always N workers: a plain-process case in which num_processes > 1 was given (option or config, not
     merely inferred from the devices) and the type is not NO starts N native workers (kind "elastic"), without mpirun.
  D2 TORCHELASTIC_USE_AGENT_STORE is False: worker rank 0 serves the store.
  D3 variables are not exported again in upper case.
  D4 rdzv_backend, same_network and enable_cpu_affinity in a config file take effect.
  D5 the worker's own exit code is the launcher's (the original says 1): any non-zero is accepted here.
  D6 several machines without an address, or with fewer processes than machines: refused clearly. A count that does not
     divide evenly: the first machines take one more (the original drops the rest).
  D7 torchrun's flags are accepted: cases that expect them to be usage errors are skipped.
  D8 SageMaker and an unknown compute_environment: any clear refusal will do.
Cases marked `quirk` are skipped (shown with -v): docs/compatibility.md lists what we do instead.
"""
import argparse, glob, json, os, re, shutil, socket, subprocess, sys, tempfile

# One that fails waits until all of its attempt are there, on every node: the failure ends those that still start.
DUMP = '''import json, os, sys, time
def all_are_there():
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") + "."
    names = [name for folder in os.environ["CASE_OUT_ALL"].split(":") for name in os.listdir(folder)]
    return sum(name.startswith(attempt) for name in names) >= int(os.environ.get("WORLD_SIZE", "1"))
def main():
    out = os.environ["CASE_OUT"]
    n = "%s.%s.%d" % (os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), os.environ.get("RANK", "-"), os.getpid())
    with open(os.path.join(out, "." + n), "w") as f:
        json.dump({"env": dict(os.environ), "argv": sys.argv}, f)
    os.rename(os.path.join(out, "." + n), os.path.join(out, n))
    how = os.environ.get("CASE_FAIL", "")
    if how == "1" or (how.startswith("first:") and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) < int(how[6:])):
        end = time.monotonic() + 30
        while not all_are_there() and time.monotonic() < end: time.sleep(0.01)
        print("asked to fail", file=sys.stderr); sys.exit(7)
main()
'''
IGNORED_ENV = {"TORCHELASTIC_USE_AGENT_STORE", "NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
               "TORCHELASTIC_ERROR_FILE"}
D7_CASES = {"elastic-redirects-not-a-flag", "elastic-standalone-not-a-flag"}
LAUNCH_FIELDS = ["nnodes_min", "nnodes_max", "nproc_per_node", "node_rank", "rdzv_backend", "rdzv_endpoint",
                 "max_restarts", "monitor_interval", "role", "log_dir", "tee", "standalone"]


def pattern(text, home):
    text = str(text)
    rx = re.escape(text)
    for key, sub in {"@PYTHON@": r"\S*python[0-9.]*", "@CWD@": re.escape(os.path.realpath(home)), "@HOME@": re.escape(home),
                     "@FREE_PORT@": r"\d+", "@HOSTNAME@": r"\S+", "@UUID@": r"[0-9a-fA-F-]+", "@RAND@": r"\w+",
                     "@STANDALONE_ENDPOINT@": r"(localhost|127\.0\.0\.1):\d+"}.items():
        rx = rx.replace(re.escape(key), sub)
    return re.compile(rx + r"\Z", re.S)


def same(want, got, home):
    if isinstance(want, str) and "@" in want:
        return isinstance(got, (str, int)) and bool(pattern(want, home).match(str(got)))
    if isinstance(want, (int, float)) and not isinstance(want, bool) and isinstance(got, (int, float)):
        return abs(want - got) < 1e-9
    return want == got or str(want) == str(got)


def diff_map(want, got, home, what, ignore=()):
    out = []
    for k in sorted(set(want) | set(got)):
        if k in ignore:
            continue
        if k not in got:
            out.append(f"{what}: missing {k}={want[k]!r}")
        elif k not in want:
            out.append(f"{what}: extra {k}={got[k]!r}")
        elif not same(want[k], got[k], home):
            out.append(f"{what}: {k}: want {want[k]!r}, got {got[k]!r}")
    return out


def is_d1(case, exp):
    if exp.get("kind") != "process" or "MASTER_ADDR" not in exp["env"]:
        return False
    if re.search(r"""distributed_type:\s*["']?NO\b""", case.get("config_yaml") or ""):
        return False
    given = any(a.replace("-", "_").startswith("__num_processes") for a in case["argv"])
    return given or "num_processes" in (case.get("config_yaml") or "")


def d6(case, exp, plan, code, stderr):
    """None if not a D6 case, else its complaints."""
    launch = exp.get("launch") or {}
    if launch.get("nnodes_max", 1) < 2:
        return None
    if str(launch.get("rdzv_endpoint", "")).startswith("None:") or launch.get("nproc_per_node") == 0:
        return [] if code and stderr.strip() else ["must be refused with a clear message"]
    given = [a.split("=")[1] if "=" in a else case["argv"][i + 1] for i, a in enumerate(case["argv"])
             if a.replace("-", "_").startswith("__num_processes")]
    if not given or int(given[-1]) % launch["nnodes_max"] == 0:
        return None
    q, r = divmod(int(given[-1]), launch["nnodes_max"])
    want = q + (launch["node_rank"] < r)
    got = (plan or {}).get("launch", {}).get("nproc_per_node")
    return [] if got == want else [f"launch.nproc_per_node: want {want} (uneven split), got {got}"]


class Box:
    """One case's HOME with its config, files and scripts."""
    def __init__(self, case, node=None):
        self.home = tempfile.mkdtemp(prefix="case-")
        src = node or case
        if src.get("config_yaml") is not None:
            name = case.get("config_name") or "cfg.yaml"
            path = os.path.join(self.home, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "w").write(src["config_yaml"])
        for name, text in (case.get("files") or {}).items():
            path = os.path.join(self.home, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            open(path, "w").write(text if isinstance(text, str) else json.dumps(text))
        os.makedirs(os.path.join(self.home, "pkg"))
        open(os.path.join(self.home, "pkg/__init__.py"), "w").close()
        for name in ("train.py", "fail.py", "pkg/mod.py"):
            open(os.path.join(self.home, name), "w").write(DUMP)
        run = os.path.join(self.home, "run.sh")
        open(run, "w").write("#!/bin/sh\nexec python3 train.py \"$@\"\n")
        os.chmod(run, 0o755)
        self.facts = os.path.join(self.home, ".facts.json")
        json.dump(case.get("hardware") or {}, open(self.facts, "w"))
        self.out = os.path.join(self.home, ".out")
        os.makedirs(self.out)
        self.env = {"PATH": os.environ["PATH"], "HOME": self.home, "LANG": "C.UTF-8", "CASE_OUT": self.out}
        self.env.update({k: v.replace("@HOME@", self.home) for k, v in (case.get("base_env") or {}).items()})

    def close(self):
        shutil.rmtree(self.home, ignore_errors=True)


def occupy(case):
    socks = []
    for port in (case.get("hardware") or {}).get("ports_in_use") or []:
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", int(port)))
        s.listen()
        socks.append(s)
    return socks


def check_error(err, code, stderr, d8):
    out = []
    if code == 0 and not err.get("crash"):
        return ["accepted what must be refused"]
    if code and err["exit_code"] == 2 and code != 2:
        out.append(f"exit code {code}, bad usage is 2")
    if code < 0 or code == 139:
        out.append(f"died of signal {-code}")
    if not err.get("crash") and not d8:
        out += [f"stderr lacks {w!r}" for w in err.get("message_contains") or [] if w not in stderr]
    if code and not stderr.strip():
        out.append("no message")
    if re.search(r"Traceback|terminate called|what\(\):", stderr):
        out.append("raw traceback")
    return out


def check_plan(case, exp, plan, stderr, home):
    out = []
    d1 = is_d1(case, exp)
    kind = "elastic" if d1 else exp["kind"]
    if plan.get("kind") != kind:
        out.append(f"kind: want {kind}, got {plan.get('kind')}")
    want = dict(exp["env"])
    ignore = set(IGNORED_ENV)
    if d1:
        ignore |= {"MASTER_ADDR", "MASTER_PORT", "ACCELERATE_USE_CPU", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"}
        ignore |= {k for k in want if k.startswith("FSDP_") or k == "ACCELERATE_USE_FSDP"}
    out += diff_map(want, plan.get("env") or {}, home, "env", ignore)
    if not d1:
        wc, gc = exp["command"], plan.get("command") or []
        if len(wc) != len(gc) or not all(same(a, b, home) for a, b in zip(wc, gc)):
            out.append(f"command: want {wc}, got {gc}")
        for f in LAUNCH_FIELDS:
            if f in (exp.get("launch") or {}):
                a, b = exp["launch"][f], (plan.get("launch") or {}).get(f)
                if not same(a, b, home):
                    out.append(f"launch.{f}: want {a!r}, got {b!r}")
    out += [f"stderr lacks {w!r}" for w in exp.get("stderr_contains") or [] if w not in stderr and not d1]
    if not d1:
        out += diff_map(exp.get("defaulted") or {}, plan.get("defaulted") or {}, home, "defaulted")
    return out


def check_started(exp, box, code):
    out = []
    dumps = [json.load(open(os.path.join(box.out, f))) for f in os.listdir(box.out) if not f.startswith(".")]
    if (code == 0) != (exp["exit_code"] == 0):
        out.append(f"exit code {code}, want {exp['exit_code']}")
    elif code and box.env.get("CASE_FAIL") == "1" and code != 7:
        out.append(f"exit code {code}, the script's is 7")
    if not dumps:
        return out + ["no worker started"]
    counts = {int(d["env"].get("TORCHELASTIC_RESTART_COUNT", 0)) for d in dumps}
    if "runs_restart_rank" in exp and counts != {c for c, _ in exp["runs_restart_rank"]}:
        out.append(f"restart counts {sorted(counts)}, want {sorted({c for c, _ in exp['runs_restart_rank']})}")
    first = {d["env"].get("LOCAL_RANK"): d for d in dumps if int(d["env"].get("TORCHELASTIC_RESTART_COUNT", 0)) == min(counts)}
    first_round_ok = exp["exit_code"] == 0 or bool(box.env.get("CASE_FAIL"))
    workers = exp.get("worker_env") or ([{"LOCAL_RANK": None}] if exp["kind"] == "process" else [])
    for w in workers:
        d = first.get(w["LOCAL_RANK"])
        if d is None and not first_round_ok:
            continue
        if d is None:
            out.append(f"local rank {w['LOCAL_RANK']} never started")
            continue
        want = {**exp["env"], **(exp.get("worker_env_common") or {}), **{k: v for k, v in w.items() if v is not None}}
        got = {k: d["env"].get(k) for k in want if k in d["env"]}
        out += diff_map(want, got, box.home, f"worker {w['LOCAL_RANK']}", IGNORED_ENV)
        if "worker_argv" in exp:
            ga = [a for a in d["argv"]]
            if len(ga) != len(exp["worker_argv"]) or not all(same(os.path.basename(a) if i == 0 else a, os.path.basename(b) if i == 0 else b, box.home)
                                                             for i, (a, b) in enumerate(zip(exp["worker_argv"], ga))):
                out.append(f"worker argv {ga}, want {exp['worker_argv']}")
    for name in exp.get("log_files") or []:
        rx = pattern(name, box.home)
        if not any(rx.match(os.path.relpath(os.path.join(r, f), box.home)) for r, _, fs in os.walk(box.home) for f in fs):
            out.append(f"no log file {name}")
    return out


def run_case(case, acc, really):
    """-> None if not applicable in this mode, else a list of complaints."""
    nodes = case.get("nodes") or [case]
    def starts(exp):
        return "worker_env" in exp or (exp.get("kind") == "process" and "worker_argv" in exp and not is_d1(case, exp))
    if really and (case.get("error") or not any(starts(n.get("expect") or {}) for n in nodes)):
        return None
    socks, boxes, out = occupy(case), [Box(case, n if "nodes" in case else None) for n in nodes], []
    for box in boxes:
        box.env["CASE_OUT_ALL"] = ":".join(one.out for one in boxes)
    try:
        procs = []
        for n, box in zip(nodes, boxes):
            argv = [acc] + ([] if really else ["--print_plan"]) + ["--host_facts", box.facts] + n["argv"]
            files = [open(os.path.join(box.home, f), "w+") for f in (".stdout", ".stderr")]
            procs.append((subprocess.Popen(argv, cwd=box.home, env=box.env, stdin=subprocess.DEVNULL, stdout=files[0], stderr=files[1]), files))
        for (p, files), n, box in zip(procs, nodes, boxes):
            try:
                p.wait(60)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
                out.append("no answer in 60 s")
                continue
            text = []
            for f in files:
                f.seek(0)
                text.append(f.read())
            err = n.get("error") or case.get("error")
            if err:
                env = re.search(r"compute_environment:\s*(\S+)", n.get("config_yaml") or "")
                out += check_error(err, p.returncode, text[1], bool(env) and "LOCAL_MACHINE" not in env.group(1))
                continue
            exp = n["expect"]
            if really:
                out += check_started(exp, box, p.returncode)
                continue
            if d6({**case, **n}, exp, None, p.returncode, text[1]) == []:
                continue
            if p.returncode:
                out.append(f"exit code {p.returncode}: {text[1].strip()[-200:]}")
                continue
            try:
                plan = json.loads(text[0])
                said = d6({**case, **n}, exp, plan, 0, text[1])
                out += check_plan({**case, **n}, exp, plan, text[1], box.home) if said is None else said
            except ValueError as e:
                out.append(f"stdout is no JSON plan: {e}")
        return out
    finally:
        for s in socks:
            s.close()
        for b in boxes:
            b.close()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--acc-launch", required=True)
    ap.add_argument("--run", action="store_true")
    ap.add_argument("--only", default="")
    ap.add_argument("-v", action="store_true")
    ap.add_argument("dirs", nargs="+")
    a = ap.parse_args()
    acc, good, bad = os.path.abspath(a.acc_launch), 0, 0
    for f in sorted(f for d in a.dirs for f in glob.glob(os.path.join(d, "*.json"))):
        case = json.load(open(f))
        if a.only not in case["name"] or case.get("scope") == "optional":
            continue
        if case.get("quirk") or case["name"] in D7_CASES:
            if a.v:
                print(f"skip {case['name']}: quirk of the original, or D7")
            continue
        said = run_case(case, acc, a.run)
        if said is None:
            continue
        good, bad = good + (not said), bad + bool(said)
        if said:
            print(f"FAIL {case['name']}: " + "; ".join(said if a.v else said[:3]))
        elif a.v:
            print(f"ok   {case['name']}")
    print(f"{good} passed, {bad} failed")
    return 1 if bad or not good else 0


sys.exit(main())
