#!/usr/bin/env bash
# Downloads Debian packages and unpacks the guests from them. Installs nothing. Quick when all are
# there.
#
#   tests/nfs/fetch.sh uml|qemu     one guest; exit status 1 when it cannot be made
#   tests/nfs/fetch.sh              both; exit status 0: run.sh says why one is missing
set -euo pipefail

here="$(dirname "$(realpath "$0")")"
source "$here/cache.sh"
engine="${1:-}"
work="$cache/work"
lists=() # options for apt-get that name package lists of our own, once those of the system have failed

give_up() {
    rm -rf "${cache:?}/$engine"
    mkdir -p "$cache/$engine"
    echo "$*" >"$cache/$engine/why-not"
    exit 1
}

finish() {
    local status=$?
    [[ $status == 0 || -e "$cache/$engine/why-not" ]] || (give_up "unpacking failed: see $cache/fetch-$engine.log") || true
    [[ $status == 0 ]] || echo "nfs: no $engine guest: $(cat "$cache/$engine/why-not")" >&3
    rm -rf "$work"
    exit $status
}

apt() { # takes no lock, as nothing is installed
    timeout 300 apt-get -qq --yes -o Debug::NoLocking=1 -o APT::Sandbox::User=root -o Acquire::Retries=2 \
        -o Acquire::http::Timeout=20 -o Dir::Cache::archives="$PWD/" "${lists[@]}" "$@" >>"$work/apt.log" 2>&1
}

with_lists() { # with_lists COMMAND...: once more with fresh package lists, kept here, when it fails with the system's
    "$@" && return
    lists=(-o Dir::State::lists="$work/lists/" -o Dir::Cache="$work/lists/")
    mkdir -p "$work/lists/partial"
    apt update
    "$@"
}

with_dependencies() { # downloads packages and what they need that this system does not have
    apt install --no-install-recommends --reinstall --download-only "$@"
}

newest_kernel() { # downloads a kernel in which io_uring hands NFS reads to its workers: 6.5 or later
    local name package
    for name in linux-image-6.12-amd64 linux-image-amd64; do
        package="$(apt-cache "${lists[@]}" depends "$name" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-\)/\1/p')"
        [[ "$package" =~ ^linux-image-(6\.([5-9]|[1-9][0-9])|7\.[01])\. ]] || continue
        apt download "$package" && return
    done
    return 1
}

get() { # get FOLDER COMMAND...: downloads into a new folder
    mkdir -p "$1/partial"
    cd "$1"
    with_lists "${@:2}" || give_up "apt-get cannot download it: $(grep -m 1 '^E:' "$work/apt.log" || tail -n 1 "$work/apt.log")"
    cd "$work"
}

unpack() { # unpack DEBS ROOT [TAR-OPTION...]: as a system whose /bin, /sbin and /lib are those of /usr
    local deb folder
    mkdir -p "$2"
    for deb in "$1"/*.deb; do
        dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$2" --no-same-owner --exclude='./usr/share/[dlm]o[cn]*' \
            --exclude='*/man' --exclude='*/systemd' --exclude=./etc/init.d "${@:3}"
    done
    for folder in bin sbin lib lib64; do
        [[ -d "$2/$folder" ]] || continue
        mkdir -p "$2/usr/$folder"
        cp -a "$2/$folder/." "$2/usr/$folder/"
        rm -rf "${2:?}/$folder"
    done
}

find_program() { # find_program ROOT NAME
    find "$1" -path "*bin/$2" -print -quit
}

all_libraries() { # all_libraries ROOT PROGRAM...: whether they start with the libraries in ROOT and this system's
    local program
    for program in "${@:2}"; do
        program="$(find_program "$1" "$program")"
        [[ -n "$program" ]] || return 1
        ! LD_LIBRARY_PATH="$1/usr/lib/x86_64-linux-gnu" ldd "$program" 2>&1 | grep 'not found' >&2 || return 1
    done
}

get_tools() { # what the guest needs besides this system's programs: NFS server and client, network, busybox
    get "$work/debs-tools" with_dependencies nfs-kernel-server nfs-common rpcbind iproute2 kmod busybox-static
    unpack "$work/debs-tools" "$work/tools"
    all_libraries "$work/tools" rpc.mountd rpc.nfsd exportfs mount.nfs rpcbind nfsdcld kmod ip tc ||
        give_up "libraries of the NFS tools are missing"
}

in_load_order() { # in_load_order MODULES NAME...: the modules' files, each behind those it needs; those built in are left out
    local modules="$1" name line
    for name in "${@:2}"; do
        line="$(grep -E "/$name\.ko[.a-z]*:" "$modules/modules.dep")" ||
            grep -q "/$name\.ko" "$modules/modules.builtin" || give_up "its kernel has no module $name"
        tr -s ' ' '\n' <<<"${line/:/}" | tac
    done | awk 'NF && !seen[$0]++'
}

make_initrd() { # make_initrd MODULES OUT NAME...: busybox, init.sh, tools, and kernel modules to load one after another
    local root="$work/initrd-root" number=100 file out="$2"
    rm -rf "$root"
    mkdir -p "$root"/{bin,modules}
    cp "$(find_program "$work/tools" busybox)" "$root/bin/busybox"
    cp "$here/init.sh" "$root/init"
    chmod +x "$root/init"
    cp -a "$work/tools" "$root/tools"
    in_load_order "$1" "${@:3}" >"$work/order"
    while read -r file; do
        number=$((number + 1))
        case "$file" in
        *.xz) xz -dc "$1/$file" ;;
        *.zst) zstd -qdc "$1/$file" ;;
        *) cat "$1/$file" ;;
        esac >"$root/modules/$number-$(basename "${file%.ko*}").ko"
    done <"$work/order"
    (cd "$root" && find . | bin/busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$out"
}

nfs_modules=(overlay veth sch_netem nfs nfsv3 nfsv4 nfsd)

make_uml() {
    get "$work/debs-uml" with_dependencies user-mode-linux
    unpack "$work/debs-uml" "$work/uml"
    mkdir "$work/new/bin"
    mv "$work/uml/usr/bin/linux.uml" "$work/new/bin/linux"
    all_libraries "$work/new" linux || give_up "libraries of user-mode-linux are missing"
    make_initrd "$(echo "$work"/uml/usr/lib/uml/modules/*)" "$work/new/initrd" "${nfs_modules[@]}"
}

make_qemu() {
    local version
    get "$work/debs-qemu" with_dependencies qemu-system-x86
    unpack "$work/debs-qemu" "$work/new/root" --exclude='*i386*' --exclude='*-microvm' --exclude='*/ipxe' --exclude='*/icons' --exclude='*.fd'
    all_libraries "$work/new/root" qemu-system-x86_64 || give_up "libraries of QEMU are missing"
    get "$work/debs-kernel" newest_kernel
    unpack "$work/debs-kernel" "$work/kernel" --exclude='*/drivers/[a-mo-u]*' --exclude='*/drivers/net/[a-u]*' --exclude='*/sound'
    version="$(ls "$work/kernel/usr/lib/modules")"
    ln -s usr/lib "$work/kernel/lib"
    (export LD_LIBRARY_PATH="$work/tools/usr/lib/x86_64-linux-gnu"
        exec -a depmod "$(find_program "$work/tools" kmod)" -b "$work/kernel" "$version")
    make_initrd "$work/kernel/lib/modules/$version" "$work/new/initrd" virtio_pci 9p 9pnet_virtio "${nfs_modules[@]}"
    mv "$work/kernel/boot/vmlinuz-$version" "$work/new/vmlinuz"
}

case "$engine" in
uml | qemu) ;;
"")
    "$0" uml || true
    "$0" qemu || true
    exit 0
    ;;
*)
    echo "usage: $0 [uml|qemu]" >&2
    exit 2
    ;;
esac

mkdir -p "$cache"
# A running guest holds the lock shared, so nothing is removed while it runs.
exec 3>&2 9>"$cache/lock"
! is_ready "$engine" || exit 0
flock -w 900 9 || { echo "nfs: $cache is in use" >&2; exit 1; }
! is_ready "$engine" || exit 0

rm -rf "$work" "${cache:?}/$engine"
mkdir -p "$work/new"
trap finish EXIT
exec 2>"$cache/fetch-$engine.log"
[[ "$(uname -m)" == x86_64 ]] || give_up "this machine is no x86_64"
for program in apt-get dpkg-deb xz; do
    command -v "$program" >/dev/null || give_up "there is no $program here"
done
echo "nfs: downloading the $engine guest for tests on real NFS into $cache: once" >&3
get_tools
"make_$engine"
made_by >"$work/new/made-by"
mv "$work/new" "$cache/$engine"
