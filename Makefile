# One place for every command; `make help` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
NAME   ?= banlieue
# Most tests wait for something; each worker has a control plane of its own (about 1 GB).
WORKERS ?= 5
export E2E_CLUSTER ?= local

.DEFAULT_GOAL := help

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' Makefile
	@echo "  (make help-more: rarer ones)"

setup: $(STAMP) ## Make the virtual environment from the hashed locks
$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) hack/setup.py $(VENV)
	@touch $(STAMP)

tools: ## Build the pinned Go tools (etcd, Kubernetes, vcsim); cached per user
	@$(PYTHON) hack/tools/build.py

demo: setup tools ## Local control plane, all roles, three VirtualMachines becoming Ready (KEEP=1 stays up)
	@$(BIN)/python -m test.kit.demo

test: setup tools ## The whole test ladder, in random order
	@cd hack/tools/vcsim && export CGO_ENABLED=0 && go vet -trimpath ./... && go test -trimpath ./...
	@cd hack/tools/pause && export CGO_ENABLED=0 && go vet -trimpath ./... && go test -trimpath ./...
	@$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=12

test-unit: setup ## What needs no process: a minute
	@$(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder -m "not slow and not e2e" test/unit test/conformance test/stories/test_all_told.py

check: setup ## Lint, types, import contracts, generated files, sizes
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python hack/generate.py --check
	@$(BIN)/python hack/sizes.py

format: setup ## Let ruff put the code in order
	@$(BIN)/ruff check --fix --exit-zero .
	@$(BIN)/ruff format .

generate: setup ## Write CRDs and the API reference from the models
	@$(BIN)/python hack/generate.py

cluster-up: setup ## A one-node Kubernetes without Docker, as root (NAME=banlieue); prints its kubeconfig
	@$(PYTHON) hack/tools/build.py --group all
	@$(BIN)/python -m hack.cluster up --name $(NAME)

cluster-down: setup ## End that cluster; images stay in the cache for the next (PURGE=1: nothing stays)
	@$(BIN)/python -m hack.cluster down --name $(NAME) $(if $(PURGE),--purge)

e2e: setup tools ## Real pods, clusterctl and CAPI core on such a cluster (E2E_CLUSTER=local|kind, CAPI=1.11)
	@$(PYTHON) hack/tools/build.py --group cluster
	@$(BIN)/python -m hack.images
	@cd hack/tools/cert-manager && export CGO_ENABLED=0 && go vet -trimpath ./... && go test -trimpath ./...
	@cd hack/tools/workload-api && export CGO_ENABLED=0 && go vet -trimpath ./... && go test -trimpath ./...
	@$(PYTEST) -m e2e test/e2e --durations=12

release: setup tools ## Components, templates, checksums, image and wheel into out/
	@$(BIN)/python hack/release.py

bench: setup tools ## Measure calls, writes and times; JSON into out/bench (BACKEND=vsphere N=1,50 CAPV=1: beside others)
ifdef BACKEND
	@$(if $(CAPV),$(PYTHON) hack/tools/build.py --group peer)
	@$(BIN)/python -m test.bench.$(BACKEND) $(if $(N),--vms '$(N)') $(if $(CAPV),--capv)
else
	@$(BIN)/python -m test.bench
	@$(BIN)/python -m test.bench.placement
	@$(BIN)/python -m test.bench.scale
	@$(BIN)/python -m test.bench.outage
	@$(BIN)/python -m test.bench.three
	@$(BIN)/python -m test.bench.fleet
	@$(PYTHON) hack/tools/build.py --group cluster
	@$(BIN)/python -m test.bench.clusters
endif

clean: ## Remove what was built in this tree; caches of other trees stay
	@rm -rf $(VENV) out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: help setup tools demo test test-unit check format generate cluster-up cluster-down e2e release bench clean

include hack/more.mk
