#!/usr/bin/env bash
# Runs a command with a real product behind the test server of buckets: Ceph's radosgw, with one
# monitor and one OSD that keeps its objects in memory. They are started in a folder of their own and
# end with the command.
#
#   tests/radosgw/run.sh COMMAND...
#
# Debian's packages: ceph-mon, ceph-osd, radosgw, curl. The command sees SHADE_TEST_PRODUCT, which
# makes `shade-test-bucket` pass requests on, and the variables of AWS that find the gateway.
set -euo pipefail

missing=()
for program in ceph ceph-mon ceph-osd radosgw radosgw-admin curl; do
    command -v "$program" >/dev/null || missing+=("$program")
done
if ((${#missing[@]})); then
    echo "LEFT OUT: the tests of buckets on Ceph's radosgw: there is no ${missing[*]} (setup/system-packages.sh product)"
    exit 0
fi

folder="$(mktemp --directory --tmpdir shade-radosgw-XXXXXX)"
children=()
end() {
    # The gateway first: it waits for the others otherwise.
    for ((at = ${#children[@]} - 1; at >= 0; at--)); do
        kill -KILL "${children[at]}" 2>/dev/null || true
    done
    wait "${children[@]}" 2>/dev/null || true
    rm -rf "$folder"
}
trap end EXIT

start() { # start PROGRAM ARGUMENT...: in the background, until the end
    "$@" -f --conf "$folder/ceph.conf" >>"$folder/$1.out" 2>&1 &
    children+=("$!")
}

fail() { # fail WHAT: with what the programs said last
    echo "radosgw: $1" >&2
    tail --quiet --lines=5 "$folder"/*.out "$folder"/*.log >&2 || true
    exit 1
}

free_ports() {
    python3 -c 'import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(socket.getsockname()[1] for socket in sockets))'
}

read -r monitor monitor_v1 gateway < <(free_ports)
monitors="[v2:127.0.0.1:$monitor,v1:127.0.0.1:$monitor_v1]"
cluster="$(cat /proc/sys/kernel/random/uuid)"
osd="$(cat /proc/sys/kernel/random/uuid)"
mkdir "$folder"/{mon,osd,rgw}
cat >"$folder/ceph.conf" <<EOF
[global]
fsid = $cluster
mon host = $monitors
public network = 127.0.0.0/8
keyring = $folder/keyring
run dir = $folder
admin socket = $folder/\$name.asok
log file = $folder/\$name.log
pid file = $folder/\$name.pid
mon data = $folder/mon
osd data = $folder/osd
rgw data = $folder/rgw
osd objectstore = memstore
memstore device bytes = 1073741824
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
mon data avail crit = 0
mon data avail warn = 0
[client.rgw.shade]
rgw frontends = beast endpoint=127.0.0.1:$gateway
EOF
export CEPH_CONF="$folder/ceph.conf"

key() { # key NAME CAPABILITY...: makes its key
    local words=()
    for daemon in "${@:2}"; do words+=(--cap "$daemon" 'allow *'); done
    ceph-authtool "$folder/keyring" --gen-key --name "$1" "${words[@]}" >/dev/null
}

: >"$folder/keyring"
key mon. mon
key client.admin mon osd mgr
key osd.0 mon osd mgr
key client.rgw.shade mon osd
monmaptool --create --fsid "$cluster" --addv a "$monitors" "$folder/monmap" >/dev/null
ceph-mon --mkfs --id a --monmap "$folder/monmap" --keyring "$folder/keyring" >"$folder/mkfs.out" 2>&1
start ceph-mon --id a
timeout 60 ceph osd new "$osd" 0 >>"$folder/mkfs.out" 2>&1 || fail "the monitor does not answer"
ceph-osd --mkfs --id 0 --osd-uuid "$osd" >>"$folder/mkfs.out" 2>&1
start ceph-osd --id 0
start radosgw --name client.rgw.shade
export AWS_ENDPOINT_URL="http://127.0.0.1:$gateway" AWS_ACCESS_KEY_ID=shade AWS_REGION=us-east-1
export AWS_SECRET_ACCESS_KEY="a secret of shade's tests"
for ((tries = 0; ; tries++)); do
    if curl --silent --output /dev/null "$AWS_ENDPOINT_URL"; then break; fi
    ((tries < 600)) || fail "the gateway does not answer"
    sleep 0.1
done
radosgw-admin --name client.rgw.shade user create --uid shade --display-name shade \
    --access-key "$AWS_ACCESS_KEY_ID" --secret "$AWS_SECRET_ACCESS_KEY" >>"$folder/mkfs.out" 2>&1
# The bucket of the tests.
nothing="$(: | sha256sum | cut -d ' ' -f 1)"
curl --silent --show-error --fail --request PUT --aws-sigv4 "aws:amz:$AWS_REGION:s3" \
    --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" --header "x-amz-content-sha256: $nothing" \
    "$AWS_ENDPOINT_URL/photos" || fail "the gateway makes no bucket"
SHADE_TEST_PRODUCT="$(radosgw --version)"
export SHADE_TEST_PRODUCT
echo "radosgw: $SHADE_TEST_PRODUCT, up after $SECONDS s" >&2
"$@"
