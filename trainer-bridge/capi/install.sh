#!/bin/sh
# Installs the C interface: install.sh PREFIX [FOLDER OF THE BUILT LIBRARY].
# Build it before: cargo build --release --package shade-capi
set -eu
here=$(cd "$(dirname "$0")" && pwd)
prefix=$1
built=${2:-$here/../../target/release}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml" | head -n 1)
mkdir -p "$prefix/lib/pkgconfig" "$prefix/lib/cmake/shade_client" "$prefix/include"
prefix=$(cd "$prefix" && pwd)
install -m 755 "$built/libshade_client.so" "$prefix/lib/libshade_client.so.1"
ln -sf libshade_client.so.1 "$prefix/lib/libshade_client.so"
install -m 644 "$built/libshade_client.a" "$prefix/lib/"
install -m 644 "$here/include/shade_client.h" "$here/include/shade_torch.hpp" "$prefix/include/"
install -m 644 "$here/shade_client-config.cmake" "$prefix/lib/cmake/shade_client/"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/shade_client.pc.in" \
    > "$prefix/lib/pkgconfig/shade_client.pc"
