#!/usr/bin/env bash
# From a bare Debian 12 to trainings that survive the loss of a worker, in one command.
# Installs what is missing (compiler and libraries; the Fashion-MNIST images; PyTorch: about 1 GB), builds acc-launch, then
# trains twice with two workers: a convolutional net in plain C++ on our own runtime, and one with PyTorch DDP. Each loses
# a worker in the middle and goes on.
set -euo pipefail
. "$(dirname "$0")/../cmake/setup.sh"

acc_install $acc_build_packages
acc_need_images
acc_build acc-launch acc-test acc-test-worker fashion_mnist

work=$(mktemp -d "${TMPDIR:-/tmp}/quickstart.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$acc_root"

# run NAME LEAST_ACCURACY WORD… : acc-launch with these words; its output must tell of a restart and of that accuracy.
run() {
  local name=$1 least=$2 started=$SECONDS status=0 score resumed
  shift 2
  acc_say "acc-launch $*"
  timeout --foreground 300 "$acc_bin/acc-launch" "$@" 2>&1 | tee "$work/output" || status=$?
  score=$(sed -n 's/.*done: test accuracy \([0-9.]*\).*/\1/p' "$work/output" | tail -1)
  resumed=$(sed -n 's/.*attempt [1-9][0-9]*: .*\(going on after step [0-9]*\|resuming after epoch [0-9]*\).*/\1/p' \
    "$work/output" | tail -1)
  echo
  if [ "$status" -ne 0 ] || [ -z "$score" ] || [ -z "$resumed" ]; then
    acc_die "$name did not go as it should (exit code $status): see the lines above"
  fi
  awk -v score="$score" -v least="$least" 'BEGIN { exit !(score >= least) }' ||
    acc_die "$name: test accuracy $score is below $least"
  acc_say "$name: test accuracy $score after $((SECONDS - started)) s, 2 workers"
  echo "Worker 1 was killed in the middle; the other one was stopped, both started again, $resumed."
}

run "C++ on acc's runtime" 0.87 --config_file examples/02_fashion_mnist/cfg.yaml --log_dir "$work/logs" --tee 3 \
  "$acc_bin/fashion_mnist" --project "$work/fashion_mnist" --crash-at-step 1300

if acc_need_torch; then
  acc_say "Python with torch: $PYTHON_EXEC"
  run "PyTorch DDP" 0.80 --config_file examples/02_fashion_mnist/cfg.yaml --log_dir "$work/logs" --tee 3 \
    examples/02_fashion_mnist/train.py --checkpoint "$work/fashion_mnist.pt" --crash-at-epoch 3
else
  echo "no Python with torch, and none could be installed: the PyTorch twin was left out" >&2
fi
echo
echo "Next: examples/README.md; is this machine fit? build/release/bin/acc-test --num_processes 2"
echo "Your own script: build/release/bin/acc-launch --num_processes 2 train.py"
