#!/usr/bin/env bash
# Checks the two things that make does not install: a Rust toolchain and a Python. Changes nothing.
set -euo pipefail

python="${PYTHON:-python3}"
wanted="$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)"
wanted_python="$(sed -n 's/^requires-python = ">=\(.*\)"$/\1/p' trainer-bridge/py/pyproject.toml)"

if ! command -v cargo >/dev/null; then
    echo "setup: no cargo on PATH: install Rust $wanted or newer (rustup does it), then run make again" >&2
    exit 1
fi
found="$(rustc --version | cut -d ' ' -f 2)"
if [[ "$(printf '%s\n%s\n' "$wanted" "$found" | sort -V | head -n 1)" != "$wanted" ]]; then
    echo "setup: Rust $found is too old: shade needs $wanted or newer (rustup update)" >&2
    exit 1
fi
for component in fmt clippy; do
    if ! cargo "$component" --version >/dev/null 2>&1; then
        echo "setup: cargo $component is missing: rustup component add rustfmt clippy" >&2
        exit 1
    fi
done
if command -v "$python" >/dev/null; then
    found="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    if [[ "$(printf '%s\n%s\n' "$wanted_python" "$found" | sort -V | head -n 1)" != "$wanted_python" ]]; then
        echo "setup: $python is Python $found, which is too old: shade needs Python $wanted_python or newer." >&2
        echo "setup: name a newer one, for example: make PYTHON=python$wanted_python ..." >&2
        exit 1
    fi
fi
