#!/usr/bin/env bash
# Fuzzes every parser of foreign bytes with libFuzzer under the address and undefined-behaviour sanitizers:
# tests/fuzz/run.sh [SECONDS for each target, default 60]. A crashing input is left in build/fuzz and named; put it into
# tests/fuzz/corpus/TARGET with the fix.
set -euo pipefail
. "$(dirname "$0")/../../cmake/setup.sh"
seconds=${1:-60}
acc_install $acc_build_packages clang libclang-rt-14-dev
cd "$acc_root"
cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang \
  -DACC_FUZZ=ON -DACC_SANITIZE=address,undefined >build/fuzz.log 2>&1 || { cat build/fuzz.log >&2; exit 1; }
cmake --build build/fuzz --target fuzz-config fuzz-argv fuzz-error_file fuzz-job_file fuzz-worker_socket fuzz-control fuzz-stacks fuzz-ctl fuzz-frame fuzz-handshake fuzz-etcd \
  fuzz-readers fuzz-hosts fuzz-safetensors fuzz-manifest fuzz-http fuzz-http_reply fuzz-figures
for target in config argv error_file job_file worker_socket control stacks ctl frame handshake etcd readers hosts safetensors manifest http http_reply figures; do
  acc_say "fuzz-$target for $seconds s"
  mkdir -p "build/fuzz/corpus/$target"
  build/fuzz/bin/fuzz-$target -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="build/fuzz/crash-$target-" "build/fuzz/corpus/$target" "tests/fuzz/corpus/$target"
done
