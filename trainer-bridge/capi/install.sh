#!/bin/sh
# Installs the C interface: install.sh PREFIX [FOLDER OF THE BUILT LIBRARY].
# Build it before: cargo build --release --package shade-capi
# No file names the prefix: the folder may be moved afterwards.
set -eu
if [ $# -lt 1 ] || [ $# -gt 2 ] || [ -z "$1" ]; then
    echo "usage: $0 PREFIX [FOLDER OF THE BUILT LIBRARY]" >&2
    exit 2
fi
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
built=${2:-$here/../../target/release}
# A relative prefix may begin with a dash.
case $1 in /*) prefix=$1 ;; *) prefix=./$1 ;; esac
case $built in /*) ;; *) built=./$built ;; esac
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml" | head -n 1)

versioned() { # versioned TEMPLATE TARGET: before 1.0, versions with equal minor numbers fit each other
    sed -e "s|@VERSION@|$version|" -e "s|@SERIES@|${version%.*}|" "$here/$1" > "$2"
    chmod 644 "$2"
}

mkdir -p "$prefix/lib/pkgconfig" "$prefix/lib/cmake/shade_client" "$prefix/include"
install -m 755 "$built/libshade_client.so" "$prefix/lib/libshade_client.so.1"
ln -sf libshade_client.so.1 "$prefix/lib/libshade_client.so"
install -m 644 "$built/libshade_client.a" "$prefix/lib/"
install -m 644 "$here/include/shade_client.h" "$here/include/shade_torch.hpp" "$prefix/include/"
install -m 644 "$here/shade_client-config.cmake" "$prefix/lib/cmake/shade_client/"
versioned shade_client-config-version.cmake.in "$prefix/lib/cmake/shade_client/shade_client-config-version.cmake"
versioned shade_client.pc.in "$prefix/lib/pkgconfig/shade_client.pc"
