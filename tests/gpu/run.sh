#!/usr/bin/env bash
# run.sh [FOLDER]: the whole GPU suite, a training and the bandwidth table, in under 8 minutes, on a machine with one GPU or more.
# FOLDER holds acc-launch, acc-gpu-check and acc-bench-nccl (default: build/release/bin); they are linked statically but for
# libc, so the folder can be carried to a machine where nothing is installed but the driver, the CUDA runtime and NCCL
# (found in the usual places, or named by ACC_CUDART_LIBRARY and ACC_NCCL_LIBRARY). With one GPU several ranks share it, each
# a host of its own to NCCL. OUT=FOLDER keeps the table as JSON lines there;
# ACC_GPU_BUDGET (60) is the seconds of a table, ACC_GPU_STEPS (together alone train table) what is run. Without a GPU: says so and
# ends with 77. The training is left out, and says so, unless FOLDER holds fashion_mnist, and FOLDER/fashion-mnist the images (or
# Debian's dataset-fashion-mnist is installed); it needs cuBLAS (ACC_CUBLAS_LIBRARY).
# The last line is "N passed, N failed"; the exit code is 0 only if none failed.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "${1:-$here/../../build/release/bin}" && pwd) || exit 2
for program in acc-launch acc-gpu-check acc-bench-nccl; do
  [ -x "$bin/$program" ] || { echo "run.sh: $bin/$program is not there: build it first" >&2; exit 2; }
done

facts=$("$bin/acc-gpu-check" probe) || {
  status=$?
  echo "$facts"
  [ $status -eq 77 ] && echo "SKIPPED: no GPU to test with"
  exit $status
}
echo "$facts"
devices=$(grep -c '^device ' <<<"$facts")
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
began=$SECONDS
passed=0 failed=0

# Ranks of one machine, but hosts of their own to NCCL, find each other over the loopback device.
[ "$devices" -gt 1 ] || export NCCL_SOCKET_IFNAME="${NCCL_SOCKET_IFNAME:-lo}"

# step LIMIT RANKS STATUS COUNT PROGRAM ARGUMENT…: runs it on that many ranks within LIMIT seconds; passed are the lines "ok …",
# failed the lines "not ok …", each of the COUNT that is missing, and another exit status than STATUS.
step() {
  local limit=$(($1 * slack)) ranks=$2 expected=$3 count=$4; shift 4
  local program=$1; shift
  echo "== $program $* ($ranks ranks)"
  # The launcher tells its defaults on stderr, which is shown only when something is wrong.
  timeout -k 5 "$limit" "$bin/acc-launch" --num_processes "$ranks" --no_python --quiet --grace 10 --main_process_port 0 \
    "$bin/$program" "$@" >"$work/out" 2>"$work/err" </dev/null
  local status=$?
  cat "$work/out"
  local ok bad
  ok=$(grep -c '^\(\[[^]]*\]:\? *\)\?ok ' "$work/out")
  bad=$(grep -c '^\(\[[^]]*\]:\? *\)\?not ok ' "$work/out")
  passed=$((passed + ok)) failed=$((failed + bad))
  if [ $((ok + bad)) -lt "$count" ]; then failed=$((failed + count - ok - bad)); echo "not ok: $count verdicts were to come"; fi
  if [ $status -ne "$expected" ] && [ "$bad" -eq 0 ]; then
    failed=$((failed + 1)); echo "not ok: status $status, not $expected"
  fi
  if [ "$bad" -gt 0 ] || [ $status -ne "$expected" ] || [ $((ok + bad)) -lt "$count" ]; then tail -n 40 "$work/err"; fi
}

# train LEAST RANKS WORDS ARGUMENT…: fashion_mnist on that many ranks says these words and ends with that test accuracy. One verdict.
train() {
  local least=$1 ranks=$2 words=$3 status score; shift 3
  echo "== fashion_mnist $* ($ranks ranks)"
  # Several ranks on one device are several hosts to NCCL.
  timeout -k 5 "$train_limit" "$bin/acc-launch" --num_processes "$ranks" --no_python --quiet --grace 10 --main_process_port 0 \
    bash -c '[ "$0" -gt 1 ] || export NCCL_HOSTID=$RANK; exec "$@"' "$devices" \
    "$trainer" --data "$images" --project "$work/fashion_mnist" "${train_words[@]}" "$@" >"$work/out" 2>"$work/err" </dev/null
  status=$?
  cat "$work/out"
  score=$(sed -n 's/.*done: test accuracy \([0-9.]*\) with.*/\1/p' "$work/out")
  if [ $status -eq 0 ] && grep -q "$words" "$work/out" &&
    awk -v score="${score:-0}" -v least="$least" 'BEGIN { exit !(score >= least) }'; then
    passed=$((passed + 1)); echo "ok train: $score"
  else
    failed=$((failed + 1)); echo "not ok train: status $status, accuracy ${score:-none}, expected '$words' and $least"
    tail -n 40 "$work/err"
  fi
}

json=()
if [ -n "${OUT:-}" ]; then mkdir -p "$OUT"; json=(--json "$OUT/nccl.jsonl"); fi
budget=${ACC_GPU_BUDGET:-60}  # seconds of each table
together="exact objects shared split streams handles counts training"

goals=2 slack=1  # verdicts of a table; none where the figures mean nothing: on fakes, which a sanitizer makes many times slower
if [ "${ACC_GPU_GOALS:-on}" = off ]; then goals=0 slack=5; json+=(--goals off); fi
steps=${ACC_GPU_STEPS:-together alone train table}

if [[ $steps == *together* ]]; then
  step 60 1 0 8 acc-gpu-check $together
  step 90 2 0 8 acc-gpu-check $together
  step 90 3 0 8 acc-gpu-check $together
fi
if [[ $steps == *alone* ]]; then
  step 40 2 0 1 acc-gpu-check mismatch
  step 40 3 0 1 acc-gpu-check late
  step 40 3 0 1 acc-gpu-check abort
  step 40 3 137 1 acc-gpu-check kill
fi
if [[ $steps == *train* ]]; then
  trainer=${ACC_GPU_TRAINER:-$bin/fashion_mnist}
  images=/usr/share/datasets/fashion-mnist
  [ ! -d "$bin/fashion-mnist" ] || images=$bin/fashion-mnist
  least=0.87 epochs=3 train_words=() train_limit=$((90 * slack))  # seconds
  if [ "${ACC_GPU_GOALS:-on}" = off ]; then least=0.5 epochs=1 train_words=(--images 1600); fi
  if [ ! -x "$trainer" ] || [ ! -d "$images" ]; then
    echo "== no training: $trainer and the folder $images are needed"
  else
    train "$least" 2 "^computing on " --device cuda --epochs $epochs
    train "$least" 2 "ranks, going on after step " --device cpu --epochs $((epochs + 1))  # a checkpoint of devices is one of the CPU's
    chosen="^computing on "  # the other way round, and by itself where there is a driver, which fakes have not
    [ -e /dev/nvidiactl ] || chosen="ranks, going on after step "
    train "$least" 1 "$chosen" --epochs $((epochs + 2))
  fi
fi
if [[ $steps == *table* ]]; then
  step $((budget + 60)) 1 0 $goals acc-bench-nccl --budget $((budget / 3 + 1)) "${json[@]}"
  step $((budget + 60)) 2 0 $goals acc-bench-nccl --budget "$budget" "${json[@]}"
fi

echo "$((SECONDS - began)) s"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
