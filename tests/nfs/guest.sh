#!/usr/bin/env bash
# Second stage, inside the guest: an NFS server, and an NFS client with the command in a network
# namespace of its own.
#
# The server exports /srv/nfs, a tmpfs that the command fills. The client mounts it at /mnt/nfs,
# read-only. Both are visible to the command. Process 1 is in the server's network: `nsenter -t 1
# -n` goes there.
set -eEuo pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C
source "$CONF"

say() {
    read -r uptime _ </proc/uptime
    echo "nfs guest, $uptime s: $*"
}

stop() {
    say "ends"
    sync
    exec busybox poweroff -f
}

connect() { # server 10.99.0.1 and client 10.99.0.2, one cable, jumbo frames
    ip link set lo up
    ip netns add client
    ip link add srv0 mtu 9000 type veth peer name cli0 mtu 9000 netns client
    ip addr add 10.99.0.1/24 dev srv0
    ip link set srv0 up
    ip -n client link set lo up
    ip -n client addr add 10.99.0.2/24 dev cli0
    ip -n client link set cli0 up
    # A wide TCP window from the start, on both sides. Otherwise it would limit reads on a long
    # link.
    ip route replace 10.99.0.0/24 dev srv0 src 10.99.0.1 initcwnd 500
    ip -n client route replace 10.99.0.0/24 dev cli0 src 10.99.0.2 initcwnd 500
    widen
    in_client bash -c widen
}

widen() {
    echo 4096 4194304 4194304 >/proc/sys/net/ipv4/tcp_rmem
    echo 4096 4194304 4194304 >/proc/sys/net/ipv4/tcp_wmem
    echo 0 >/proc/sys/net/ipv4/tcp_slow_start_after_idle
}
export -f widen

serve() {
    mkdir -p /srv/nfs /var/lib/nfs/rpc_pipefs /var/lib/nfs/nfsdcld /run/rpcbind
    mount -t tmpfs tmpfs /srv/nfs
    : >/var/lib/nfs/etab
    : >/var/lib/nfs/rmtab
    rm -rf /etc/exports.d
    # A tmpfs has no id of its own, so the export needs an fsid.
    echo '/srv/nfs 10.99.0.0/24(ro,async,no_root_squash,no_subtree_check,insecure,fsid=0)' >/etc/exports
    mount -t nfsd nfsd /proc/fs/nfsd
    mount -t rpc_pipefs rpc_pipefs /var/lib/nfs/rpc_pipefs
    # Otherwise an rsize of 1 MiB is cut.
    echo 1048576 >/proc/fs/nfsd/max_block_size
    exportfs -ra
    if [[ "$version" == 3 ]]; then
        # rpcbind ends without a message when this user is missing.
        grep -q ^_rpc: /etc/passwd || echo '_rpc:x:111:65534::/run/rpcbind:/usr/sbin/nologin' >>/etc/passwd
        rpcbind -w
        rpc.mountd
        rpc.nfsd --no-nfs-version 4 8
    else
        # nfsdcld knows that no client will come back, which ends the server's grace period at once.
        echo 10 >/proc/fs/nfsd/nfsv4leasetime
        echo 10 >/proc/fs/nfsd/nfsv4gracetime
        nfsdcld
        rpc.mountd --no-nfs-version 2 --no-nfs-version 3
        rpc.nfsd --no-nfs-version 3 8
    fi
}

in_client() {
    nsenter --net=/run/netns/client "$@"
}

mount_it() {
    local source=10.99.0.1:/ options=vers=4.2
    # The server grants a session some 30 slots. With fewer, scenarios know the number.
    echo 24 >/sys/module/nfs/parameters/max_session_slots
    [[ "$version" != 3 ]] || source=10.99.0.1:/srv/nfs options=vers=3,nolock,proto=tcp
    mkdir -p /mnt/nfs
    in_client timeout 120 mount -t nfs -o "ro,hard,$options,retry=0,rsize=1048576" "$source" /mnt/nfs
}

trap 'say "line $LINENO failed"; dmesg | tail -n 20; stop' ERR
trap stop EXIT
say "$(uname -r)"
mount -t sysfs sysfs /sys
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
[[ -e /dev/fd ]] || ln -s /proc/self/fd /dev/fd
connect
serve
say "serves"
mount_it
say "mounted"
output=/dev/tty1
[[ "$ENGINE" == uml ]] || output=/dev/ttyS1
stty -F "$output" raw -echo
trap - ERR
in_client env TMPDIR=/run "${command[@]}" </dev/null >"$output" || say "the command failed: $?"
