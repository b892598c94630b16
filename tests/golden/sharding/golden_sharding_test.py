#!/usr/bin/env python3
"""golden_sharding_test.py GOLDEN_SHARDING RECORDED: a comparison that never fails proves nothing.

Changes recorded rows and looks whether each change is seen and named; breaks files and looks at exit code and words.
"""
import json
import pathlib
import subprocess
import sys
import tempfile


def run(program, folder):
    done = subprocess.run([program, "--threads", str(folder)], capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout, done.stderr


def leaves(value, path=()):
    """Paths to all numbers and texts of a row's outcome."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if path or key not in ("in", "op", "world", "args", "error"):
                yield from leaves(inner, path + (key,))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, path + (index,))
    else:
        yield path


def changed(row, path):
    copy = json.loads(json.dumps(row))
    at = copy
    for step in path[:-1]:
        at = at[step]
    old = at[path[-1]]
    at[path[-1]] = not old if isinstance(old, bool) else old + 1 if isinstance(old, (int, float)) else old + "x"
    return copy


def main():
    program, recorded = sys.argv[1], pathlib.Path(sys.argv[2])
    faults = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for source in sorted(recorded.glob("*.json")):
            document = json.loads(source.read_text())
            rows = []
            for row in document["cases"]:
                paths = list(leaves(row))
                # An error's name is the original's: ours has other words for it.
                if paths and "RuntimeError" not in row.get("out", []):
                    rows.append(changed(row, paths[len(rows) * 7919 % len(paths)]))
            file = folder / source.name
            file.write_text(json.dumps({"note": document["note"], "cases": rows}))
            code, out, err = run(program, folder)
            if code != 1 or out.splitlines()[-1:] != [f"0 passed, {len(rows)} failed"]:
                faults.append(f"{source.name}, {len(rows)} changed rows: exit {code}: {out[-500:]}{err}")
            for index in range(len(rows)):
                if f"{source.name} case {index} differs: " not in out:
                    faults.append(f"{source.name}: row {index} is not named")
            file.unlink()

        note = "in = [batches per epoch, gradient accumulation steps, sync_with_dataloader]"
        broken = {
            "no JSON": ("{", "is not JSON"),
            "no note": ("{}", "there is no 'note'"),
            "other note": (json.dumps({"note": "in = [a, b]", "cases": []}), "a schema that is not known: in = [a, b]"),
            "too few": (json.dumps({"note": note, "cases": [{"in": [1, 2]}]}), "case 0: 'in' has not the 3 values"),
            "no flag": (json.dumps({"note": note, "cases": [{"in": [1, 2, 7]}]}), "case 0: 'sync_with_dataloader' is 7"),
            "no outcome": (json.dumps({"note": note, "cases": [{"in": [1, 2, 1]}]}), "there is no 'sync_gradients'"),
            "no op": (json.dumps({"note": "", "cases": [{"op": "x", "world": 1, "out": [1], "args": {}}]}), "not known: 'x'"),
            "no words": (json.dumps({"note": "", "cases": [{"op": "gather", "world": 1, "out": [1], "args": {"rank_tensor": "2y"}}]}),
                         "'2y': expected a type at 'y'"),
        }
        for what, (text, words) in broken.items():
            (folder / "x.json").write_text(text)
            code, _, err = run(program, folder)
            if code != 2 or words not in err or len(err.splitlines()) != 1:
                faults.append(f"{what}: exit {code}: {err}")
        (folder / "x.json").unlink()
        for where, words in ((folder, "no *.json file in it"), (folder / "none", "No such file or directory")):
            code, _, err = run(program, where)
            if code != 2 or words not in err:
                faults.append(f"{where}: exit {code}: {err}")
    print("\n".join(faults) or "every change was seen")
    return 1 if faults else 0


sys.exit(main())
