#!/usr/bin/env bash
# Unpacks and packs the inputs of the fuzz targets: corpus/TARGET.tar.zst <-> corpus/TARGET/. Needs
# GNU tar and zstd.
#
#   images/fuzz/corpus.sh unpack    adds the archives' inputs to the folders, which git ignores
#   images/fuzz/corpus.sh pack      writes the archives anew from the folders, and from nothing else
set -euo pipefail
export LC_ALL=C # for the order of names
cd "$(dirname "$0")/corpus"

unpack() {
    local archive
    for archive in *.tar.zst; do
        tar --zstd --extract --file "$archive"
        echo "${archive%.tar.zst}: $(tar --zstd --list --file "$archive" | grep -vc '/$') inputs"
    done
}

pack() {
    local folder target before
    shopt -s nullglob
    local folders=(*/)
    if [[ ${#folders[@]} -eq 0 ]]; then
        echo "corpus.sh: no folders in $PWD: run unpack first" >&2
        return 1
    fi
    for folder in "${folders[@]}"; do
        target="${folder%/}"
        before=0
        [[ ! -f "$target.tar.zst" ]] || before="$(tar --zstd --list --file "$target.tar.zst" | grep -vc '/$')"
        # The same inputs give the same archive: no order, owner, mode or time of this machine is in it.
        tar --create --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rw,go=r --mtime=@0 \
            --use-compress-program='zstd -19' --file "$target.tar.zst" "$target"/*
        echo "$target: $(find "$target" -type f | wc -l) inputs, before $before"
    done
}

case "${1:-}" in
unpack | pack) "$1" ;;
*)
    echo "usage: $0 unpack|pack" >&2
    exit 2
    ;;
esac
