#!/usr/bin/env bash
# Makes benches/dlio/.venv: DLIO, its loaders and Open MPI. PyTorch and shade_load are those of the
# project's .venv (VENV).
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
project="${VENV:-$here/../../.venv}"
venv="$here/.venv"
# The branch that MLPerf Storage v2.0 uses. PyPI's dlio-benchmark 2.0.0 is older: it has other names
# of options, and computes utilisation from the time that was asked for. DLIO: another URL for pip,
# such as git+file:///a/clone@COMMIT.
dlio="${DLIO:-git+https://github.com/argonne-lcf/dlio_benchmark@392621b230472c4206e4299ece689700e07544a4}"

pip_install() { # pip_install ARGUMENT...
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

packages_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

"$project/bin/python" -m venv "$venv"
# Its .pth files count, too: shade_load is there by one.
echo "import site; site.addsitedir('$(packages_of "$project")')" >"$(packages_of "$venv")/of-the-project.pth"
pip_install --requirement "$here/requirements.txt"
# mpi4py looks for Open MPI in its own environment: both belong here, also if the project's has them.
pip_install --ignore-installed --no-deps --requirement "$here/mpi-requirements.txt"
pip_install --no-deps --requirement "$here/../rivals/requirements/dali.txt"
# Its requirements are all of CUDA's builds.
pip_install --no-deps "$dlio"
touch "$venv/.installed"
