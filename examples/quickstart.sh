#!/usr/bin/env bash
# From a bare Debian 12 to a training that survives the loss of a worker, in one command.
# Installs what is missing (compiler and libraries; PyTorch and the Fashion-MNIST images: about 1 GB), builds acc-launch,
# trains a small network with two workers, kills one of them in the middle and watches the job go on.
set -euo pipefail
. "$(dirname "$0")/../cmake/setup.sh"

acc_install $acc_build_packages
acc_need_torch || acc_die "no Python with torch, and none could be installed"
acc_say "Python with torch: $PYTHON_EXEC"
acc_build acc-launch

work=$(mktemp -d "${TMPDIR:-/tmp}/quickstart.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$acc_root"
example=examples/02_fashion_mnist
command=("$acc_bin/acc-launch" --config_file $example/cfg.yaml --log_dir "$work/logs" --tee 3
  $example/train.py --checkpoint "$work/fashion_mnist.pt" --crash-at-epoch 3)
acc_say "acc-launch ${command[*]:1}"
started=$SECONDS
status=0
timeout --foreground 300 "${command[@]}" 2>&1 | tee "$work/output" || status=$?

score=$(sed -n 's/.*done: test accuracy \([0-9.]*\).*/\1/p' "$work/output" | tail -1)
resumed=$(sed -n 's/.*attempt \([1-9][0-9]*\): .*resuming after epoch \([0-9]*\).*/restart \1 went on after epoch \2/p' \
  "$work/output" | tail -1)
echo
if [ "$status" -ne 0 ] || [ -z "$score" ] || [ -z "$resumed" ]; then
  acc_die "this did not go as it should (exit code $status): see the lines above"
fi
awk -v score="$score" 'BEGIN { exit !(score >= 0.80) }' || acc_die "test accuracy $score is below 0.80"
acc_say "test accuracy $score after $((SECONDS - started)) s, 2 workers"
echo "What you saw: acc-launch started 2 PyTorch workers (DDP, gloo, CPU); worker 1 was killed in the middle of epoch 3;"
echo "the other one was stopped, both were started again, and $resumed, from the checkpoint."
echo "Next: examples/README.md, and your own script: build/release/bin/acc-launch --num_processes 2 train.py"
