#!/usr/bin/env bash
# Installs the Debian/Ubuntu packages that shade's build needs, and nothing when they are all there.
#
#   setup/system-packages.sh compilers compilers, cmake, nasm, pkg-config, Python: required
#   setup/system-packages.sh build     these and Python's venv: required for all but `make check`
#   setup/system-packages.sh dataset   Fashion-MNIST for demo and benches: optional, exits with 0 without it
#   setup/system-packages.sh cache     a Redis server for the tests of the tier: optional, the same
#   setup/system-packages.sh slurm     Slurm for the tests of launchers: optional, the same
#   setup/system-packages.sh browser   Chromium for the test of the report: optional, the same
#   setup/system-packages.sh valgrind  valgrind for a test of the C interface: optional, the same
#   setup/system-packages.sh product   Ceph's S3 gateway for `make test-product`: optional, the same
#   setup/system-packages.sh emulator  QEMU, to run what `make release` built for aarch64: optional, the same
#
# PYTHON names the interpreter that will make the virtual environment (default: python3).
set -euo pipefail

python="${PYTHON:-python3}"
missing=()

need() { # need PACKAGE... -- COMMAND...: remembers the packages when the command fails
    local packages=()
    while [[ "$1" != "--" ]]; do packages+=("$1"); shift; done
    shift
    "$@" >/dev/null 2>&1 || missing+=("${packages[@]}")
}

compiles() { # compiles COMPILER LANGUAGE HEADER: finds a compiler whose C library has no headers
    command -v "$1" && echo "#include <$3>" | "$1" -x "$2" -E - -o /dev/null
}

find_missing_compilers() {
    need gcc libc6-dev -- compiles cc c stdio.h
    need g++ -- compiles c++ c++ vector
    need cmake -- command -v cmake
    need pkg-config -- command -v pkg-config
    if [[ "$(uname -m)" == x86_64 ]]; then
        need nasm -- command -v nasm # libjpeg-turbo's SIMD code
    fi
    need python3 -- command -v "$python"
}

find_missing_build() {
    find_missing_compilers
    need python3-venv -- "$python" -c 'import ensurepip, venv'
}

find_missing_dataset() {
    need dataset-fashion-mnist -- test -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz
}

find_missing_cache() {
    # redis-tools has the server as redis-check-rdb, and starts no service as redis-server would.
    need redis-tools -- sh -c 'command -v redis-server || command -v redis-check-rdb'
}

find_missing_slurm() {
    need slurmctld slurmd slurm-client munge -- sh -c 'command -v slurmctld && command -v slurmd && command -v srun && command -v munged'
}

find_missing_browser() {
    need chromium -- command -v chromium
}

find_missing_valgrind() {
    # It reads the C library's debugging symbols at its start.
    need valgrind libc6-dbg -- command -v valgrind
}

find_missing_product() {
    need ceph-mon ceph-osd radosgw curl -- sh -c 'command -v ceph-mon && command -v ceph-osd && command -v radosgw && command -v curl'
}

find_missing_emulator() {
    need qemu-user-static -- command -v qemu-aarch64-static
    need libc6-arm64-cross -- test -d /usr/aarch64-linux-gnu/lib
}

install() {
    local as_root=()
    if ! command -v apt-get >/dev/null; then
        echo "setup: missing: ${missing[*]} (Debian's names), and there is no apt-get here." >&2
        echo "setup: install them with this system's package manager, then run make again." >&2
        return 1
    fi
    if [[ "$(id -u)" != 0 ]]; then
        if ! command -v sudo >/dev/null; then
            echo "setup: missing: ${missing[*]}. You are not root and there is no sudo here; as root, run:" >&2
            echo "    apt-get update && apt-get install ${missing[*]}" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    echo "setup: installing ${missing[*]}"
    "${as_root[@]}" apt-get -qq update || echo "setup: apt-get update failed; trying with the lists that are here" >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -o Dpkg::Use-Pty=0 install --yes --no-install-recommends "${missing[@]}"
}

case "${1:-}" in
compilers | build)
    "find_missing_$1"
    if [[ ${#missing[@]} -gt 0 ]]; then
        install
        missing=()
        "find_missing_$1"
        if [[ ${#missing[@]} -gt 0 ]]; then
            echo "setup: still missing after installation: ${missing[*]}" >&2
            echo "setup: (where $python is not the system's Python, it must bring the modules venv and ensurepip itself)" >&2
            exit 1
        fi
    fi
    ;;
dataset)
    find_missing_dataset
    if [[ ${#missing[@]} -gt 0 ]] && ! install; then
        echo "setup: Fashion-MNIST is not to be had here; the demo can draw images of its own" >&2
    fi
    ;;
cache)
    find_missing_cache
    if [[ ${#missing[@]} -gt 0 ]] && ! install; then
        echo "setup: a Redis server is not to be had here; tests that need one say so and are left out" >&2
    fi
    ;;
slurm)
    find_missing_slurm
    # Under systemd the packages would start services.
    if [[ ${#missing[@]} -gt 0 ]] && { [[ -d /run/systemd/system ]] || ! install; }; then
        echo "setup: Slurm is not to be had here; tests that need it say so and are left out" >&2
    fi
    ;;
product)
    find_missing_product
    # As with Slurm.
    if [[ ${#missing[@]} -gt 0 ]] && { [[ -d /run/systemd/system ]] || ! install; }; then
        echo "setup: Ceph is not to be had here; its tests say so and are left out" >&2
    fi
    ;;
browser)
    find_missing_browser
    if [[ ${#missing[@]} -gt 0 ]] && ! install; then
        echo "setup: Chromium is not to be had here; the test that needs it says so and is left out" >&2
    fi
    ;;
valgrind)
    find_missing_valgrind
    if [[ ${#missing[@]} -gt 0 ]] && ! install; then
        echo "setup: valgrind is not to be had here; the test that needs it is skipped" >&2
    fi
    ;;
emulator)
    find_missing_emulator
    if [[ ${#missing[@]} -gt 0 ]] && ! install; then
        echo "setup: QEMU is not to be had here; programs for aarch64 are built and not run" >&2
    fi
    ;;
*)
    echo "usage: $0 compilers|build|dataset|cache|slurm|browser|valgrind|emulator" >&2
    exit 2
    ;;
esac
