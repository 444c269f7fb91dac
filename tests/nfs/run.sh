#!/usr/bin/env bash
# Runs a command on a real NFS mount in a throw-away guest.
#
#   tests/nfs/run.sh uml|qemu 4.2|3 COMMAND [ARG...]
#
# Standard output is the command's. Standard error is the guest's console with the command's
# standard error. The exit status is the guest's, not the command's: 0, 77 (cannot run here, the
# reason is on standard error), 137 (took too long). Nothing outlives this script: the guest runs in
# PID and mount namespaces that end with it, and its files and memory are in a tmpfs there.
set -euo pipefail

here="$(dirname "$(realpath "$0")")"
source "$here/cache.sh"
# A guest that needs more time hangs. On two cores each needs a minute.
seconds_max=900
memory_mib=1024

skip() {
    echo "nfs: no $engine guest: $*" >&2
    exit 77
}

enter_namespaces() { # runs this script again inside; whoever called it takes it all down by dying, even by SIGKILL
    local new=(--mount --pid --fork --kill-child=KILL)
    if ! unshare "${new[@]}" true 2>/dev/null; then
        new+=(--user --map-root-user)
        unshare "${new[@]}" true 2>/dev/null || skip "this system does not let us make namespaces"
    fi
    exec setpriv --pdeathsig KILL unshare "${new[@]}" "$0" --inside "$engine" "$version" "$@"
}

boot() { # runs the guest with the command's output on file descriptor 3 and its console on standard error
    local parameters=("ENGINE=$engine" "STAGE2=$here/guest.sh" "CONF=$files/conf" quiet selinux=0 panic=-1)
    case "$engine" in
    uml)
        # UML keeps its memory in a file of TMPDIR.
        TMPDIR="$files" "$cache/uml/bin/linux" "mem=${memory_mib}M" "uml_dir=$files/" "initrd=$cache/uml/initrd" \
            con=null con0=null,fd:2 con1=null,fd:3 ssl=null "${parameters[@]}"
        ;;
    qemu)
        local root="$cache/qemu/root" library
        library="$root/usr/lib/x86_64-linux-gnu"
        # Without KVM, even where there is a /dev/kvm, as not every host's runs a Debian kernel.
        # no_timer_check: on a busy host the kernel would take an emulated timer for a broken one
        # and panic.
        LD_LIBRARY_PATH="$library" QEMU_MODULE_DIR="$library/qemu" "$root/usr/bin/qemu-system-x86_64" \
            -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" -M pc -accel tcg,thread=multi -cpu max \
            -m "$memory_mib" -smp 2 -nodefaults -no-user-config -display none -no-reboot \
            -kernel "$cache/qemu/vmlinuz" -initrd "$cache/qemu/initrd" \
            -append "console=ttyS0 mitigations=off nokaslr no_timer_check tsc=reliable nowatchdog ${parameters[*]}" \
            -chardev file,id=console,path=/dev/fd/2,append=on -serial chardev:console \
            -chardev file,id=output,path=/dev/fd/3,append=on -serial chardev:output \
            -fsdev local,id=host,path=/,security_model=none,multidevs=remap,readonly=on \
            -device virtio-9p-pci,fsdev=host,mount_tag=host
        ;;
    esac
}

run_guest() {
    # Over an empty folder that always exists.
    files="$cache/run"
    mkdir -p "$files"
    mount -t tmpfs -o mode=700 tmpfs "$files"
    {
        printf 'version=%q\n' "$version"
        printf 'command=('
        printf '%q ' "$@"
        printf ')\n'
    } >"$files/conf"
    export -f boot
    export engine here files cache memory_mib
    # The guests change the mode of their descriptors, so they get pipes of their own.
    timeout --signal=KILL "$seconds_max" bash -c boot 3> >(cat) > >(cat >&2) 2>&1 </dev/null &
    wait $!
}

if [[ "${1:-}" == --inside ]]; then
    engine="$2" version="$3"
    shift 3
    # Process 1 gets only the signals that it traps.
    trap 'exit 143' INT TERM HUP
    status=0
    run_guest "$@" || status=$?
    # Passes on the guest's output. A killed guest leaves processes that never end, so do not wait
    # for them.
    if [[ "$status" == 0 ]]; then wait; else sleep 1; fi
    exit "$status"
fi
case "${1:-} ${2:-}" in
"uml 4.2" | "uml 3" | "qemu 4.2" | "qemu 3") ;;
*)
    echo "usage: $0 uml|qemu 4.2|3 COMMAND [ARG...]" >&2
    exit 2
    ;;
esac
engine="$1" version="$2"
shift 2
[[ -z "${SHADE_NO_GUESTS:-}" ]] || skip "SHADE_NO_GUESTS is set, as make check does"
is_ready "$engine" || skip "$(cat "$cache/$engine/why-not" 2>/dev/null || echo "it was not fetched: run 'make nfs-guests'")"
[[ "$here$cache" != *[[:space:]]* ]] || skip "a path in the kernel's command line has no spaces: $here, $cache"
# UML saves fewer registers than such a CPU has: "ptrace set fp regs failed", and init is dead.
if [[ "$engine" == uml ]] && grep -qsw amx_tile /proc/cpuinfo; then
    skip "user-mode Linux 6.1 cannot run on a CPU with AMX"
fi
exec 9<"$cache/lock"
flock --shared 9
enter_namespaces "$@"
