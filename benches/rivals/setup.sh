#!/usr/bin/env bash
# Makes benches/rivals/.venv with every rival that installs here. One that does not is named and left out: the
# bench says so again and goes on without it. PyTorch is the one in the project's .venv (VENV), not a second copy.
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
project="${VENV:-$here/../../.venv}"
venv="$here/.venv"
minutes_max=10 # for one rival, its download and its build included
debian_packages=(libopencv-dev libturbojpeg0-dev pkg-config)

pip_install() { # pip_install ARGUMENT...
    timeout "${minutes_max}m" "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --constraint "$here/requirements/constraints.txt" "$@"
}

install_rival() { # install_rival NAME
    echo "rivals: installing $1"
    pip_install --requirement "$here/requirements/$1.txt" || echo "rivals: $1 does not install here: left out" >&2
}

ffcv_can_be_built() { pkg-config --exists opencv4 libturbojpeg; }

install_debian_packages() {
    if [[ "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null; then
        echo "rivals: ffcv needs ${debian_packages[*]} (Debian's names); only root can install them" >&2
        return 1
    fi
    echo "rivals: installing ${debian_packages[*]}"
    timeout "${minutes_max}m" apt-get -qq update || true # the lists that are here may do
    DEBIAN_FRONTEND=noninteractive timeout "${minutes_max}m" \
        apt-get -qq -o Dpkg::Use-Pty=0 install --yes --no-install-recommends "${debian_packages[@]}"
}

install_ffcv() {
    if ! ffcv_can_be_built && ! { install_debian_packages && ffcv_can_be_built; }; then
        echo "rivals: ffcv cannot be built here: left out" >&2
        return
    fi
    install_rival ffcv
    # Its build asks for numpy and torch that are there already.
    pip_install --no-build-isolation --no-deps ffcv==1.0.2 || echo "rivals: ffcv does not build here: left out" >&2
}

packages_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

"$project/bin/python" -m venv "$venv"
packages_of "$project" >"$(packages_of "$venv")/of-the-project.pth"
for rival in webdataset litdata mosaicml; do
    install_rival "$rival"
done
install_ffcv
touch "$venv/.installed"
