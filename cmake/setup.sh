# Sourced by examples/quickstart.sh, tests/run.sh and the other scripts: installs what is missing (Debian's apt-get and
# nothing else), configures, builds, finds a Python with torch. ACC_NO_SETUP=1 leaves the machine's packages alone.

acc_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
acc_bin=$acc_root/build/release/bin

acc_build_packages="build-essential cmake ninja-build pkg-config git ca-certificates file python3 ccache
  libboost1.81-dev libyaml-cpp-dev libspdlog-dev nlohmann-json3-dev libssl-dev catch2 zlib1g-dev libncurses-dev"
# For aarch64 (tests/arm64.sh): the tools of this machine, and what cmake/arm64/root.sh unpacks for the target.
acc_cross_packages="g++-aarch64-linux-gnu qemu-user-static"
# For tests/arm64/machine.py.
acc_machine_packages="qemu-system-arm ipxe-qemu cpio"
acc_target_packages="libboost1.81-dev libyaml-cpp-dev libspdlog-dev nlohmann-json3-dev libssl-dev catch2 zlib1g-dev libncurses-dev"
# What tests play faults with; a test that lacks its tool skips and says so.
acc_test_packages="iproute2 nftables netcat-openbsd etcd-server etcd-client procps psmisc util-linux strace systemd slurm-wlm munge openmpi-bin mpich libmpich-dev libopenmpi-dev openssh-client openssh-server python3-pyte python3-coverage python3-venv python3-cloudpickle elfutils"
# Large: fetched while the programs are compiled. pandoc makes the site of the documents.
acc_browser_packages="chromium chromium-driver pandoc"

acc_say() { if [ -t 1 ]; then printf '\033[1m== %s\033[0m\n' "$*"; else printf '== %s\n' "$*"; fi; }
acc_die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# acc_missing PACKAGE…: prints those of them that are not installed and configured.
acc_missing() {
  local name
  for name in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || echo "$name"
  done
}

# acc_install PACKAGE…: those of them that are not installed.
acc_install() {
  [ "${ACC_NO_SETUP:-}" != 1 ] || return 0
  command -v apt-get >/dev/null && command -v dpkg-query >/dev/null ||
    acc_die "this is not a Debian: install the equivalents of [$*] and run again with ACC_NO_SETUP=1"
  local missing
  mapfile -t missing < <(acc_missing "$@")
  [ ${#missing[@]} -gt 0 ] || return 0

  local root=(env)
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null ||
      acc_die "packages are missing and neither root nor sudo is at hand; as root: apt-get install ${missing[*]}"
    root=(sudo)
  fi
  acc_say "installing: ${missing[*]}"
  # Waits for a package manager that already runs. An old package list is tried only if a new one can't be had.
  "${root[@]}" apt-get -o DPkg::Lock::Timeout=300 update -q ||
    echo "apt-get update failed; going on with the package lists at hand" >&2
  # apt-get also fails for another package that was left unconfigured: what counts is whether ours are there.
  "${root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
    install -y -q --no-install-recommends "${missing[@]}" </dev/null ||
    [ -z "$(acc_missing "${missing[@]}")" ] ||
    acc_die "apt-get could not install: $(acc_missing "${missing[@]}" | tr '\n' ' ')"
}

# The services that packages of acc_test_packages bring: the tests start what they need by themselves.
acc_services_of() {
  case $1 in
    openssh-server) echo ssh.service ssh.socket ;;
    etcd-server) echo etcd.service ;;
    munge) echo munge.service ;;
    slurm-wlm) echo slurmd.service slurmctld.service ;;
  esac
}

# acc_install_optional PACKAGE…: as acc_install, but goes on without those that can't be had. A service that comes with one is
# switched off: nobody who runs tests asked for an ssh server.
acc_install_optional() {
  [ "${ACC_NO_SETUP:-}" != 1 ] || return 0
  local name new
  new=$(acc_missing "$@")
  (acc_install "$@") || for name in $(acc_missing "$@"); do (acc_install "$name") || true; done
  if [ -d /run/systemd/system ]; then
    for name in $new; do
      for name in $(acc_services_of "$name"); do
        $([ "$(id -u)" = 0 ] || echo sudo) systemctl disable --now "$name" >/dev/null 2>&1 || true
      done
    done
  fi
  [ -n "$(acc_missing "$@")" ] || return 0
  acc_say "going on without: $(acc_missing "$@" | tr '\n' ' ')(the tests that need them will be skipped)"
}

# acc_build [TARGET…]: preset release, or $acc_preset; the programs are then in build/PRESET/bin ($acc_bin).
acc_build() {
  local targets=() preset=${acc_preset:-release}
  [ $# -eq 0 ] || targets=(--target "$@")
  acc_say "building (preset $preset, programs in build/$preset/bin)"
  mkdir -p "$acc_root/build"
  (cd "$acc_root" && cmake --preset "$preset" >build/configure.log 2>&1) || {
    cat "$acc_root/build/configure.log" >&2
    acc_die "cmake could not configure the build"
  }
  (cd "$acc_root" && cmake --build --preset "$preset" --parallel "${ACC_JOBS:-$(nproc)}" "${targets[@]}") ||
    acc_die "the build failed"
}

acc_has_torch() {
  command -v "$1" >/dev/null 2>&1 &&
    "$1" -c 'import numpy, torch.distributed as d, sys; sys.exit(not d.is_gloo_available())' >/dev/null 2>&1
}

# acc_find_torch: several Pythons may be on a machine and only one of them may have torch. Sets and exports PYTHON_EXEC,
# which acc-launch obeys; fails if there is none.
acc_find_torch() {
  local candidate
  for candidate in "${PYTHON_EXEC:-}" "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python3}" "${CONDA_PREFIX:+$CONDA_PREFIX/bin/python3}" \
      python3 /usr/bin/python3; do
    [ -n "$candidate" ] && acc_has_torch "$candidate" || continue
    PYTHON_EXEC=$(command -v "$candidate")
    export PYTHON_EXEC
    return 0
  done
  return 1
}

# acc_need_torch: as acc_find_torch, but installs Debian's torch and the data set where they are missing. Fails where they can't
# be had; in a shell of its own, as acc_install then ends the one that calls it.
acc_need_torch() {
  if ! acc_find_torch; then
    acc_say "no Python with torch here: installing Debian's python3-torch (about 1 GB with what it needs)"
    (acc_install python3-torch python3-numpy) || return 1
    acc_find_torch || return 1
  fi
  acc_need_blas
  acc_need_images
}

# acc_need_blas: Debian's torch without its recommended packages multiplies matrices with the reference BLAS: 5.6 ms where
# OpenBLAS takes 0.2 ms.
acc_need_blas() {
  [ "$PYTHON_EXEC" = /usr/bin/python3 ] && [ -z "$(acc_missing python3-torch)" ] || return 0
  local builds=(libopenblas0-serial libopenblas0-pthread libopenblas0-openmp)
  [ "$(acc_missing "${builds[@]}" | wc -l)" -lt ${#builds[@]} ] || acc_install_optional "${builds[0]}"
}

acc_images=/usr/share/datasets/fashion-mnist
# acc_need_images: fails where the data set can't be had.
acc_need_images() {
  [ -e "$acc_images/train-images-idx3-ubyte.gz" ] || (acc_install dataset-fashion-mnist) || return 1
}
