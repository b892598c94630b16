#!/usr/bin/env python3
"""What a user reads when acc-launch refuses, and the exit code.

    refusals_test.py --acc-launch PATH
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

# Words, config file or None, exit code, what stderr must hold, and what it must not.
CASES = [
    ([], None, 2, ["required: SCRIPT"]),
    (["--num_proceses=2", "x.py"], None, 2, ["--num_proceses", "did you mean --num_processes?"]),
    (["--num_processes=2", "nope.py"], None, 127, ["cannot start 'nope.py': No such file or directory"]),
    (["--no_python", "nope"], None, 127, ["cannot start 'nope'"]),
    (["--no_python", "./plain"], None, 126, ["cannot start './plain': Permission denied"]),
    (["-m", "--no_python", "x"], None, 2, ["--module and --no_python"]),
    (["--nproc-per-node=2", "--num_processes=2", "plain"], None, 2, ["use one of the two ways"]),
    (["--nproc-per-node=1", "--nnodes=1:2", "--master-addr=h", "--master-port=28651", "plain"], None, 2,
     ["--nnodes: '1:2': a number of machines that may change needs --rdzv_backend=tcp"]),
    (["--nnodes=2", "--node-rank=0", "--master-addr=10.0.0.1", "--master-port=28651", "plain"], None, 1,
     ["several machines need a secret", "acc-launch --make_secret", "--insecure", ".config/acc/secret"]),
    (["--nnodes=2", "--node-rank=0", "--master-addr=10.0.0.1", "--master-port=28652", "--secret_file=none", "plain"],
     None, 1, ["'none'"]),
    (["--nnodes=2", "--node-rank=0", "--master-addr=10.0.0.1", "--master-port=0", "plain"], None, 2, ["need a fixed port to meet"]),
    (["--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1", "--lease=6", "--dead_after=fast", "plain"], None, 2,
     ["--dead_after", "'fast' is not a duration"]),
    (["--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:1", "--lease=6", "plain"], None, 2, ["--lease: 6 s is too short"]),
    (["--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=h:x", "plain"], None, 2, ["'h:x' is not HOST:PORT"]),
    (["--nnodes=1:2", "--rdzv-backend=c10d", "plain"], None, 2, ["--main_process_ip", "--rdzv_endpoint"]),
    (["--make_secret", "plain"], None, 73, ["--make_secret:", "exists already"]),
    (["--tpu", "plain"], None, 2, ["TPUs are not supported"]),
    (["--config_file", "nope.yaml", "plain"], None, 2, ["nope.yaml"]),
    (["--config_file", ".", "plain"], None, 2, ["not a regular file"]),
    (["--config_file", "cfg.yaml", "--num_processes=two", "plain"],
     "distributed_type: MULTI_GPUS\nmax_restarts: many\nmixed_precision: no\nzeta: 1\ngrace: fast\n", 2,
     ["'two' is not a whole number", "cfg.yaml:1: distributed_type 'MULTI_GPUS'", "did you mean MULTI_GPU?",
      "cfg.yaml:2: max_restarts: 'many'", "cfg.yaml:3: mixed_precision: unquoted no", "cfg.yaml:4: unknown key 'zeta'",
      "cfg.yaml:5: grace: 'fast' is not a duration"]),
    (["--config_file", "cfg.yaml", "--tee=9", "plain"],
     "num_processes: 2.0\nmax_restarts: -1\npreempt_signals: KILL\ndistributed_type: MULTI_CPU\nmain_process_port: 70000\nzeta: 1\n", 2,
     ["--tee: '9' names no streams", "cfg.yaml:1: num_processes: '2.0' is not a whole number\nacc-launch: cfg.yaml:2: max_restarts: -1 is out of range: "
      "0 or more\nacc-launch: cfg.yaml:3: preempt_signals: 'KILL' isn't passed on", "cfg.yaml:5: main_process_port: 70000 is not a port: 0 to 65535\n"
      "acc-launch: cfg.yaml:6: unknown key 'zeta'"]),
    (["--cpu", "--num_processes=2", "--local_ranks_filter=0,5", "plain"], None, 2, ["--local_ranks_filter: '0,5'", "local ranks 0..1"]),
    (["--cpu", "shell.sh"], None, 126, ["cannot start 'shell.sh': Permission denied (chmod +x it?)"]),
    (["--cpu", "--no_python", "shell.sh"], None, 127, ["cannot start 'shell.sh'", "for the one in this folder write ./shell.sh"]),
    (["--cpu", "true", "plain"], None, 127, ["a program on PATH? add --no_python"], ["defaults used instead"]),
    (["true"], None, 127, ["a program on PATH? add --no_python"], ["defaults used instead"]),
    (["--nnodes=2", "plain"], None, 2, ["--main_process_ip", "--master_addr or --rdzv_endpoint"]),
    (["--cpu", "--log_dir=plain/logs", "plain"], None, 73, ["--log_dir: can't write to 'plain/logs': Not a directory"]),
    (["--cpu", "--log_dir=/proc/none/logs", "plain"], None, 73, ["--log_dir: can't write to '/proc/none/logs': No such file or directory"]),
    (["--cpu", "--report=none/r.json", "plain"], None, 73, ["--report: can't write to 'none/r.json': No such file or directory"]),
    (["--cpu", "--report=.", "plain"], None, 73, ["--report: can't write to '.': Is a directory"]),
    (["--cpu", "--progress_file=none/p", "--no_python", "true"], None, 0, ["--progress_file: there is no folder 'none' yet"]),
    (["--num_processes=2", "--no_python", "true"], None, 0, ["--num_machines"], ["mixed_precision", "dynamo_backend"]),
    (["-q", "--num_processes=2", "plain"], None, 0, ["--num_machines", "--mixed_precision", "--dynamo_backend"]),
    (["--num_machine", "2", "--grace=fast", "--config_file", "cfg.yaml", "nope.py"],
     "distributed_type: MULTI_GPU\nnum_processes: two\nmixed_precision: fp64\nzeta: 1\ndynamo_config:\n  backend: fast\ntee: 0:1,7:1\n", 2,
     ["--num_machine (did you mean --num_machines?)", "--grace: 'fast'", "cannot start 'nope.py'", "cfg.yaml:2: num_processes: 'two'",
      "cfg.yaml:3: mixed_precision: 'fp64' is not one of", "cfg.yaml:4: unknown key 'zeta'", "cfg.yaml:6: dynamo_backend: 'fast'"],
     ["required", "local rank 7", "main process"]),
    (["--zzz", "3", "--num_processes=two", "--config_file=cfg.yaml", "plain"], "distributed_type: MULTI_GPUS\nnum_machines: 2\n", 2,
     ["--zzz", "'two'", "cfg.yaml:1: distributed_type 'MULTI_GPUS'"], ["cannot start", "main process", "num_processes is not set"]),
    (["--config_file", "cfg.yaml", "plain"], "fsdp_config:\n\tfsdp_version: 2\n", 2, ["cfg.yaml:2: a tab in column 1: YAML is indented by blanks"]),
    (["--config_file", "cfg.yaml", "plain"], "num_processes 4\ndistributed_type: 'NO'\n", 2,
     ["cfg.yaml:2: not valid YAML in column", "(is the colon missing in line 1?)"]),
    (["--config_file", "cfg.yaml", "plain"], "distributed_type: 'NO'\nnum_processes 4\n", 2, ["cfg.yaml:2: unknown key 'num_processes 4' (did you mean num_processes?)"]),
    (["--config_file", "cfg.yaml", "nope.py"], "a: [\n", 2, ["cfg.yaml:"], ["distributed_type is missing"]),
    (["--confg_file", "cfg.yaml", "--nnodes=2", "--grace=fast", "nope.py"], "", 2,
     ["did you mean --config_file?", "--grace: 'fast'"], ["main process", "cannot start"]),
    (["launch", "--multi_gpu", "x.py"], None, 2, ["there is no script 'launch'", "leave the word out"], ["defaults used instead"]),
    (["launch", "x.py"], None, 2, ["there is no script 'launch'", "leave the word out"], ["defaults used instead"]),
    (["to-fsdp2"], None, 2, ["acc-config convert"], ["__main__", "defaults used instead"]),  # a folder is no script
    (["--num_procs", "2", "plain"], None, 2, ["--num_procs (did you mean --num_processes?)"], ["cannot start"]),
    (["config"], None, 2, ["--print_config"]),
    (["env"], None, 2, ["acc-test --local_only"]),
    (["test"], None, 2, ["the program for it is acc-test"]),
    (["--help", "foo"], None, 2, ["there is no group and no flag 'foo'", "the groups are job, processes"], ["Most used"]),
    (["--num_processes", "2", "./crlf.sh"], None, 127, ["its lines end as on Windows (CR LF)", "sed -i 's/\\r$//' ./crlf.sh"]),
    (["--standalone", "--nnodes=2", "plain"], None, 2, ["--standalone is a job on this machine alone, but --nnodes says 2 machines"], ["main process"]),
    (["--num_processes", "-2", "plain"], None, 2, ["--num_processes: -2 is no count"]),
    (["--use_env", "--nproc_per", "2", "nope.py"], None, 2, ["torch.distributed.launch's flag", "cannot start 'nope.py'"], ["--nproc_per"]),
    (["--main_process_ip=[::1]:29600", "plain"], None, 2, ["'[::1]:29600' holds a port"]),
    (["-genv", "OMP_NUM_THREADS", "4", "-env", "A=1", "-genvall", "plain"], None, 2,
     ["-genv (mpiexec's flag; workers inherit all variables: NAME=VALUE acc-launch …)", "-env (mpiexec's flag", "-genvall (mpiexec's flag"],
     ["cannot start"]),
    (["--use_fsdp", "--num_processes", "0", "plain"], None, 2, ["--num_processes: 0 means no worker to start: write a number from 1"]),
    (["--config_file", "cfg.yaml", "plain"], "compute_environment: AMAZON_SAGEMAKER\ndistributed_type: 'NO'\n", 2,
     ["only LOCAL_MACHINE"]),
]


def no_gpu_for_the_example(acc_launch):
    """The example of an elastic job on a machine without a GPU: that is said, and nothing that follows from it."""
    example = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../configs/elastic.yaml")
    line = [acc_launch, "--config_file", example, __file__]
    done = subprocess.run(line, capture_output=True, text=True, timeout=20, check=False, env={"PATH": "", "CUDA_VISIBLE_DEVICES": ""})
    good = done.returncode == 2 and "no GPU was found" in done.stderr and "num_processes" not in done.stderr
    return [] if good else [f"{line}: {done.returncode} {done.stderr}"]


# Program, words, exit code, what it must print.
OTHERS = [
    ("acc-rendezvous", ["--version"], 0, "acc-rendezvous 0."),
    ("acc-rendezvous", ["foo"], 2, "'foo': no further word is needed"),
    ("acc-rendezvous", ["--prot", "1"], 2, "there is no option --prot (did you mean --port?)"),
    ("acc-rendezvous", ["--port"], 2, "--port needs a value"),
    ("acc-rendezvous", ["--dead_after", "0", "--lease", "1s"], 2, "--dead_after: 0 ms is too short to tell a lost machine from a busy one: 250ms or more"),
    ("acc-rendezvous", ["--dead_after", "200ms", "--lease", "9s"], 2, "--dead_after: 200 ms is too short"),
    ("acc-agent", ["--version"], 0, "acc-agent 0."),
    ("acc-agent", ["foo"], 2, "'foo': no further word is needed"),
    ("acc-agent", ["--sokcet", "/a"], 2, "there is no option --sokcet (did you mean --socket?)"),
    ("acc-agent", ["--socket"], 2, "--socket needs a value"),
    ("acc-agent", ["--state-dir", "a"], 2, "--state-dir: 'a': must be absolute"),
    ("acc-test", ["--version"], 0, "acc-test 0."),
    ("acc-launch", ["--version"], 0, "acc-launch 0."),
]


def other_programs(acc_launch):
    bad = []
    for program, words, code, said in OTHERS:
        path = os.path.join(os.path.dirname(acc_launch), program)
        done = subprocess.run([path, *words], capture_output=True, text=True, timeout=20, check=False)
        if done.returncode != code or said not in done.stdout + done.stderr:
            bad.append(f"{program} {words}: {done.returncode} {done.stdout}{done.stderr}")
    return bad


def output_gone(acc_launch):
    """What was asked for can't be shown: a disk that is full, a descriptor that is closed."""
    bad = []
    for words in ("--help", "--version", "--print_config", "--print_plan --cpu x"):
        for where in (">/dev/full", ">&-"):
            line = f"{acc_launch} {words} {where}"
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=20, check=False)
            if done.returncode != 73 or "can't write to the standard output" not in done.stderr:
                bad.append(f"{line}: exit code {done.returncode}, not 73: {done.stderr.strip()[-200:]}")
    return bad


def no_home(acc_launch):
    """No HOME, and a user that the system doesn't list."""
    if os.geteuid() != 0:
        return []
    bad = []
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        program = shutil.copy(acc_launch, folder)
        for words, code, said in ((["--make_secret"], 2, "name a file, --make_secret FILE, and give it to all machines with --secret_file FILE"),
                                  (["--nnodes=2", "--node-rank=0", "--master-addr=10.0.0.1", "--master-port=28653", "x.py"], 1,
                                   "no place for one (HOME isn't set): make one with `acc-launch --make_secret FILE`")):
            done = subprocess.run([program, *words], capture_output=True, text=True, timeout=20, check=False, env={"PATH": os.environ["PATH"]},
                                  user=54321, group=54321, extra_groups=[])
            if done.returncode != code or said not in done.stderr:
                bad.append(f"{words} without a home: {done.returncode} {done.stderr}")
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--acc-launch", required=True)
    acc_launch = os.path.abspath(parser.parse_args().acc_launch)
    bad = []
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "plain"), "w", encoding="utf-8") as file:
            file.write("pass\n")
        with open(os.path.join(folder, "shell.sh"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n")
        with open(os.path.join(folder, "crlf.sh"), "w", encoding="utf-8", newline="") as file:
            file.write("#!/bin/sh\r\ntrue\r\n")
        os.chmod(file.name, 0o755)
        env = {"PATH": os.environ["PATH"], "HOME": folder}
        for words, yaml, code, said, *unsaid in CASES:
            with open(os.path.join(folder, "cfg.yaml"), "w", encoding="utf-8") as file:
                file.write(yaml or "")
            done = subprocess.run([acc_launch, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=20, check=False)
            if done.returncode != code:
                bad.append(f"{words}: exit code {done.returncode}, not {code}: {done.stderr.strip()[-200:]}")
            bad += [f"{words}: stderr lacks {word!r}" for word in said if word not in done.stderr]
            bad += [f"{words}: stderr holds {word!r}" for word in sum(unsaid, []) if word in done.stderr]
    bad += output_gone(acc_launch) + no_gpu_for_the_example(acc_launch) + other_programs(acc_launch) + no_home(acc_launch)
    print("\n".join(bad) or f"{len(CASES)} refusals as expected")
    return 1 if bad else 0


sys.exit(main())
