#!/usr/bin/env bash
# Builds the wheel acc_launch-VERSION-py3-none-PLATFORM.whl: ./cmake/wheel.sh [FOLDER] (build/release/wheel). Installs what the build needs.
set -euo pipefail
. "$(dirname "$0")/setup.sh"

# shellcheck disable=SC2086
acc_install $acc_build_packages
acc_build acc-portable
acc_say "writing the wheel"
python3 "$acc_root/cmake/wheel/build_wheel.py" --out "${1:-$acc_root/build/release/wheel}"
