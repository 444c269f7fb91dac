#!/usr/bin/env bash
# Makes benches/rivals/.venv with every rival that installs here. One that does not is named and
# left out, and the bench goes on without it. PyTorch is that of the project's .venv (VENV).
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
project="${VENV:-$here/../../.venv}"
venv="$here/.venv"
minutes_max=10 # for one rival, its download and its build included
# FFRecord is on no package index. FFRECORD: another URL for pip, such as git+file:///a/clone.
ffrecord="${FFRECORD:-git+https://github.com/HFAiLab/ffrecord@3f6380ca316da4d846d2a1b04a5d00eb401ec2d6}"

pip_install() { # pip_install ARGUMENT...
    timeout "${minutes_max}m" "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --constraint "$here/requirements/constraints.txt" "$@"
}

install_rival() { # install_rival NAME [PIP_OPTION...]
    echo "rivals: installing $1"
    pip_install --requirement "$here/requirements/$1.txt" "${@:2}" ||
        echo "rivals: $1 does not install here: left out" >&2
}

install_debian_packages() { # install_debian_packages RIVAL NAME...
    local rival="$1"
    shift
    if [[ "$(id -u)" != 0 ]] || ! command -v apt-get >/dev/null; then
        echo "rivals: $rival needs $* (Debian's names); only root can install them" >&2
        return 1
    fi
    echo "rivals: installing $*"
    timeout "${minutes_max}m" apt-get -qq update || true # the lists that are here may do
    DEBIAN_FRONTEND=noninteractive timeout "${minutes_max}m" \
        apt-get -qq -o Dpkg::Use-Pty=0 install --yes --no-install-recommends "$@"
}

can_build_ffcv() { pkg-config --exists opencv4 libturbojpeg; }

can_build_ffrecord() {
    command -v cmake git >/dev/null && printf '#include <%s>\n' libaio.h zlib.h | cc -E - >/dev/null 2>&1
}

build_rival() { # build_rival NAME SOURCE DEBIAN_PACKAGE...
    local name="$1" source="$2"
    shift 2
    if ! "can_build_$name" && ! { install_debian_packages "$name" "$@" && "can_build_$name"; }; then
        echo "rivals: $name cannot be built here: left out" >&2
        return
    fi
    install_rival "$name"
    # Its build asks for numpy and torch that are there already.
    pip_install --no-build-isolation --no-deps "$source" || echo "rivals: $name does not build here: left out" >&2
}

has_ffmpeg() { /sbin/ldconfig -p | grep -q 'libavfilter\.so'; }

packages_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

"$project/bin/python" -m venv "$venv"
# Its .pth files count, too: shade_load is there by one.
echo "import site; site.addsitedir('$(packages_of "$project")')" >"$(packages_of "$venv")/of-the-project.pth"
for rival in webdataset litdata mosaicml s3torchconnector simplejpeg; do
    install_rival "$rival"
done
install_rival dali --no-deps
if has_ffmpeg || { install_debian_packages spdl ffmpeg && has_ffmpeg; }; then
    install_rival spdl
else
    echo "rivals: spdl finds no FFmpeg here: left out" >&2
fi
# No rival, but what the disk gives: its row is left out without it.
command -v fio >/dev/null || install_debian_packages fio fio || echo "rivals: no fio here: left out" >&2
build_rival ffcv ffcv==1.0.2 libopencv-dev libturbojpeg0-dev pkg-config
build_rival ffrecord "$ffrecord" libaio-dev zlib1g-dev cmake git
touch "$venv/.installed"
