#!/usr/bin/env bash
# run_on_fakes.sh FOLDER: run.sh over the fake libraries that FOLDER holds (tests/support/fake_nccl), for machines without a
# GPU: the script and its programs say what they find, pass where all is well, fail where something is wrong, and skip
# where there is nothing to test. The figures mean nothing here, so the goals are left out.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "$1" && pwd) || exit 2
export ACC_NCCL_LIBRARY="$bin/libfake_nccl.so" ACC_CUDART_LIBRARY="$bin/libfake_cudart.so"
export ACC_CUDA_DRIVER_LIBRARY="$bin/libfake_cudart.so"
export ACC_CUBLAS_LIBRARY="$bin/libfake_cublas.so" ACC_GPU_TRAINER="$bin/fashion_mnist_on_fakes"
export ACC_GPU_BUDGET=1 ACC_GPU_GOALS=off
# ACC_GPU_FAKE_STEPS: what is run where nothing is said (all).
unset FAKE_NCCL FAKE_CUDA CUDA_VISIBLE_DEVICES NCCL_HOSTID OUT
wrong=0

# expect STATUS LAST_LINE FAKE_CUDA FAKE_NCCL [STEPS]
expect() {
  local output status
  output=$(FAKE_CUDA="$3" FAKE_NCCL="$4" ACC_GPU_STEPS="${5:-${ACC_GPU_FAKE_STEPS:-}}" "$here/run.sh" "$bin" 2>&1)
  status=$?
  if [ $status -ne "$1" ] || ! grep -q "$2" <<<"$(tail -n 1 <<<"$output")"; then
    echo "FAILED: with FAKE_CUDA='$3' FAKE_NCCL='$4': status $status, expected $1 and '$2'; it said:"
    echo "$output"
    wrong=1
  fi
}

expect 0 '^[1-9][0-9]* passed, 0 failed$' devices=1 ''
expect 0 '^[1-9][0-9]* passed, 0 failed$' devices=4 '' alone
expect 77 '^SKIPPED: no GPU to test with$' no_driver ''
expect 77 '^SKIPPED: no GPU to test with$' no_device ''
# What is wrong is found: an error in the middle of the exact results.
expect 1 'passed, [1-9][0-9]* failed$' devices=1 error=100 together
[ $wrong -eq 0 ] && echo "run.sh says what it finds"
exit $wrong
