#!/bin/busybox sh
# First stage, the guest's /init. It loads modules and makes the host's file system the guest's
# root, read-only below an overlay in the guest's memory that has the NFS tools. ENGINE and STAGE2
# come from the kernel's command line.
b=/bin/busybox

fail() {
    echo "nfs guest: $*"
    $b poweroff -f
}

$b mkdir -p /proc /dev /mem
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
for module in /modules/*.ko; do
    $b insmod "$module" || fail "$module does not load"
done
$b mount -t tmpfs tmpfs /mem
$b mkdir /mem/host /mem/upper /mem/work /mem/root
case "$ENGINE" in
uml) $b mount -r -t hostfs -o / none /mem/host ;;
qemu) $b mount -r -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose host /mem/host ;;
esac || fail "the host's files cannot be mounted"
# Other users see root's files as nobody's, and setuid programs would make them nobody.
$b mount -t overlay -o nosuid,lowerdir=/mem/host,upperdir=/mem/upper,workdir=/mem/work overlay /mem/root ||
    fail "no overlay"
$b cp -af /tools/. /mem/root/
$b mount -t devtmpfs dev /mem/root/dev
$b mount -t proc proc /mem/root/proc
$b mount -t tmpfs tmpfs /mem/root/run
# Kernel threads have the root of /init. A plain chroot would hide rpcbind's socket from them.
exec $b switch_root /mem/root /bin/bash "$STAGE2" || fail "no second stage"
