#!/usr/bin/env bash
# clang-tidy (rules: .clang-tidy) over all our sources, with the compile commands of preset dev; any finding fails.
# ./tests/tidy.sh agent/spawn.cpp …  looks at these files only.
set -euo pipefail
. "$(dirname "$0")/../cmake/setup.sh"
acc_install $acc_build_packages clang-tidy

cd "$acc_root"
cmake --preset dev >/dev/null
if [ $# -gt 0 ]; then
  files=("$@")
else
  mapfile -t files < <(find common rendezvous agent launcher runtime -name '*.cpp' | sort)
fi
# clang reads g++'s command lines; options that it doesn't know are no findings of ours.
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy -p build/dev --quiet --warnings-as-errors='*' \
  --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unused-command-line-argument
echo "${#files[@]} files, nothing found"
