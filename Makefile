# The two commands of the README, and those that developers use.

CARGO ?= cargo
VMLAB = target/release/vmlab
# What is looked at whole: all of vmlab, without libFuzzer's C++, which only fuzzing needs.
ALL = --workspace --no-default-features --features vmlab/kubernetes,vmlab/parquet,vmlab/sqlite

.PHONY: help quickstart fast test full ready lint coverage fuzz build static probe packages \
	bench clean .probe .thinguest .static .image .tests

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

# It builds as the tests do (cargo's dev profile), not as `build`: that takes less than
# half of the time, and `make test` afterwards finds most of it built. It needs no
# guests' program. `build` and `static` compile everything once more, optimised.
quickstart: ## Install what is missing, build, run the first study
	@CARGO="$(CARGO)" scripts/quickstart

fast: ## The tests that boot no VM; seconds
	@scripts/run-tests

test: ready ## What must hold on main: real VMs, each kind of target once; minutes
	@scripts/run-tests --tier test

full: ready ## Everything, also what takes long; an hour or more
	@scripts/run-tests --tier full

# What tests of real VMs need: programs, vmlab for emulated hosts, the guests' image. Half
# of these builds keep one pCPU busy or none, so that they run side by side; all cargos
# together have as many jobs as there are pCPUs, which they take from make (`+`).
ready:
	@scripts/install-deps test
	@$(MAKE) --no-print-directory -j$(shell nproc) .tests .image .probe

.probe:
	+@scripts/build-probe
.thinguest:
	+@scripts/build-thinguest
.static: .thinguest
	+@scripts/build-static --debug
.image: .static
	@"$${CARGO_TARGET_DIR:-target}/$$(uname -m)-unknown-linux-musl/debug/vmlab" image build
# Both would wait for cargo's lock of one folder.
.tests: .static
	+@scripts/run-tests --list >/dev/null

lint: ## Formatting, clippy and the documentation, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(ALL) --all-targets -- -D warnings
	@scripts/build-thinguest --lint
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(ALL) --no-deps --quiet

coverage: ## Line coverage by crate, of the tests that boot no VM
	@scripts/coverage

fuzz: ## Every reader of foreign text over random bytes, half a minute each
	@scripts/fuzz

build: probe ## The release binary, target/release/vmlab, and the guests' program
	$(CARGO) build --release --package vmlab --features sqlite

probe: ## The guests' programs: vmlab-probe, and the thin guest that vmlab carries
	@scripts/install-deps static
	@scripts/build-probe
	@scripts/build-thinguest

static: probe ## A static binary to copy to a hypervisor
	@scripts/build-static

packages: ## A .deb, an .rpm, an archive, a wheel and an OCI image, in target/packages
	@scripts/install-deps packages
	@scripts/make-packages

bench: ## Time vmlab against its peers; prints ratios, asserts nothing
	@scripts/install-deps bench
	@$(MAKE) --no-print-directory build
	@bench/run

clean: ## Remove what was built (not the guest images: `vmlab image rm`)
	$(CARGO) clean
