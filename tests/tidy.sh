#!/usr/bin/env bash
# clang-tidy (rules: .clang-tidy) over all our sources, as preset release compiles them: several at once, so that their headers
# are read once. Any finding fails. Takes seven minutes on two cores. ./tests/tidy.sh agent/spawn.cpp …  looks at these files only.
set -euo pipefail
. "$(dirname "$0")/../cmake/setup.sh"
acc_install $acc_build_packages clang-tidy-19

cd "$acc_root"
mkdir -p build/tidy
cmake --preset release >build/tidy/configure.log || { cat build/tidy/configure.log >&2; acc_die "cmake could not configure the build"; }
mapfile -t files < <(python3 - "$@" <<'PYTHON'
"""Writes build/tidy/compile_commands.json, without options that clang doesn't know, and prints the files to look at. Sources that the
build generates (the status page, the preloader) are made first: CMake configures a fresh clone without them."""
import json, pathlib, re, subprocess, sys

root = pathlib.Path.cwd()
build = root / "build/release"
wanted = {str(root / name) for name in sys.argv[1:]}
rows, generated = [], set()
for row in json.loads((build / "compile_commands.json").read_text()):
    file = pathlib.Path(row["file"])
    if file.suffix not in (".cpp", ".cxx") or re.match(r"(build/release/)?(tests|examples)/", str(file.relative_to(root))):
        continue
    held = set(re.findall(r'#include "([^"]*)"', file.read_text())) if file.suffix == ".cxx" else {str(file)}
    generated |= {name for name in held if pathlib.Path(name).is_relative_to(build)}
    for name in sorted(wanted & held) or ([] if wanted else [str(file)]):
        row["command"] = re.sub(r" -fvect-cost-model=\w+", "", row["command"])
        rows.append({**row, "file": name, "command": row["command"].replace(str(file), name)})
(root / "build/tidy/compile_commands.json").write_text(json.dumps(rows))
missing = wanted - {row["file"] for row in rows}
if missing:
    sys.exit("not compiled by preset release: " + ", ".join(sorted(missing)))
if generated:
    names = [str(pathlib.Path(name).relative_to(build)) for name in sorted(generated)]
    made = subprocess.run(["cmake", "--build", build, "--target", *names], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if made.returncode != 0:
        sys.exit(made.stdout + "cmake could not make the generated sources")
print("\n".join(row["file"] for row in rows))
PYTHON
)
[ ${#files[@]} -gt 0 ] || exit 1
# clang reads g++'s command lines; options that it doesn't know are no findings of ours.
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy-19 -p build/tidy --quiet --warnings-as-errors='*' \
  --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unused-command-line-argument 2>build/tidy/notes.log || {
  grep -E 'error:' build/tidy/notes.log >&2 || true
  exit 1
}
echo "${#files[@]} files, nothing found"
