#!/usr/bin/env python3
"""Holds acc-config against recorded sessions of the original: check_config.py --acc-config PROGRAM DIR

wizard-*    acc-config --config_file OUT.yaml --answers ANSWERS.json --host_facts FACTS.json
            ANSWERS is a list in the order of the prompts: a number is the index chosen in a menu, text is typed, "" takes the default.
            What is typed wrongly is asked again, and the next answer counts. `error`: the program fails and writes no file.
default-*   acc-config default --config_file OUT.json --mixed_precision M --host_facts FACTS.json; a second call leaves the file alone
update-*    acc-config update --config_file FILE (in place); `error`: it fails and the file is unchanged
to-fsdp2-*  acc-config convert --to fsdp2 FILE --output_file OUT
Files are compared as data, key order aside. The last line is "N passed, M failed"; the exit code says the same.
"""
import argparse, glob, json, os, re, subprocess, sys, tempfile

import yaml

KINDS = dict(xpu="xpu", npu="npu", mlu="mlu", sdaa="sdaa", musa="musa", hpu="hpu", neuron="neuron")


def facts_of(case):
    if "hardware" in case:
        return case["hardware"]
    kind = next((k for k in KINDS if case["name"].startswith(f"wizard-{k}")), "cuda")
    return {"accelerator": kind, "gpus": 8}


def run(program, *words):
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL,
                          env={**os.environ, "HOME": os.path.dirname(words[-1]) or "/tmp"})


def check(program, case, folder):
    """Returns why the case fails, or None."""
    at = lambda name: os.path.join(folder, name)
    facts, out = at("facts.json"), at("out.yaml")
    json.dump(facts_of(case), open(facts, "w"))
    load = lambda path: yaml.safe_load(open(path))
    name = case["name"]
    if name.startswith("wizard-"):
        json.dump(case["answers"], open(at("answers.json"), "w"))
        done = run(program, "--config_file", out, "--answers", at("answers.json"), "--host_facts", facts)
        if "error" in case:
            return None if done.returncode and not os.path.exists(out) else f"should fail: exit {done.returncode}"
        want = yaml.safe_load(case["yaml"])
    elif name.startswith("default-"):
        out = at("out.json")
        words = ["default", "--config_file", out, "--mixed_precision", case["mixed_precision"], "--host_facts", facts]
        done = run(program, *words)
        want = json.loads(case["text"])
        if not done.returncode and os.path.exists(out):
            before = open(out).read() + "\n"
            open(out, "w").write(before)
            run(program, *words)
            if open(out).read() != before:
                return "a second call changed the file"
    elif name.startswith("update-"):
        open(out, "w").write(case["before"])
        done = run(program, "update", "--config_file", out)
        if "error" in case:
            return None if done.returncode and open(out).read() == case["before"] else f"should fail: exit {done.returncode}"
        want = yaml.safe_load(case["after"])
    else:
        source = at("in.yaml")
        yaml.safe_dump(case["before"], open(source, "w"))
        done = run(program, "convert", "--to", "fsdp2", source, "--output_file", out)
        want = case["after"]
    if done.returncode:
        return f"exit {done.returncode}: {done.stderr.strip()[-300:]}"
    if not os.path.exists(out):
        return "no file written"
    got = load(out)
    if got == want:
        return None
    keys = sorted(set(got or {}) | set(want))
    return "; ".join(f"{k}: {(got or {}).get(k)!r}, want {want.get(k)!r}" for k in keys if (got or {}).get(k) != want.get(k))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--acc-config", required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("folder")
    args = parser.parse_args()
    cases = [case for path in sorted(glob.glob(os.path.join(args.folder, "*.json"))) for case in json.load(open(path))
             if re.search(args.only, case["name"])]
    failed = 0
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            why = check(args.acc_config, case, folder)
        if why:
            failed += 1
            print(f"FAIL {case['name']}: {why}")
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
