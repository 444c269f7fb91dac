#!/usr/bin/env bash
# cmake for the build scripts of crates, which cargo runs it for (.cargo/config.toml).
#
# turbojpeg-sys installs all of libjpeg-turbo: also its programs and libjpeg, which has most of the
# same sources once more. Nothing links them, so two fifths of its files are left out. Where there
# is no .cargo/config.toml, as in the sdist, all are built.
set -euo pipefail

value() { # value NAME: a variable of the build folder
    sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}

if [[ "${1:-}" == --build && "${3:-} ${4:-}" == "--target install" ]]; then
    build="$2"
    if [[ "$(value CMAKE_PROJECT_NAME)" == libjpeg-turbo ]]; then
        cmake --build "$build" --target turbojpeg-static "${@:5}"
        prefix="$(value CMAKE_INSTALL_PREFIX)"
        mkdir -p "$prefix/lib"
        cp "$build/libturbojpeg.a" "$prefix/lib/"
        exit
    fi
fi
exec cmake "$@"
