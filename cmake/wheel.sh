#!/usr/bin/env bash
# Builds the wheel acc_launch-VERSION-py3-none-PLATFORM.whl: ./cmake/wheel.sh [FOLDER] (build/release/wheel). Installs what the build needs.
# ./cmake/wheel.sh --arm64 [FOLDER] (build/arm64/wheel): for aarch64, cross-compiled.
set -euo pipefail
. "$(dirname "$0")/setup.sh"

preset=release strip=strip
if [ "${1:-}" = --arm64 ]; then
  preset=arm64 strip=aarch64-linux-gnu-strip
  shift
  # shellcheck disable=SC2086
  acc_install $acc_build_packages $acc_cross_packages
  "$acc_root/cmake/arm64/root.sh"
else
  # shellcheck disable=SC2086
  acc_install $acc_build_packages
fi
acc_preset=$preset acc_build acc-portable acc-pages
acc_say "writing the wheel"
python3 "$acc_root/cmake/wheel/build_wheel.py" --programs "$acc_root/build/$preset/portable" --pages "$acc_root/build/$preset/package/share" --strip "$strip" --out "${1:-$acc_root/build/$preset/wheel}"
