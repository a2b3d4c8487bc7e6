# Targets that are needed now and then; `make help-more` lists them.

help-more: ## Show these
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' hack/more.mk

lock: ## Renew the hashed requirement locks (needs uv)
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml --group dev -o requirements/dev.txt
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml -o requirements/run.txt
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate pyproject.toml --extra libvirt -c requirements/run.txt -o requirements/image.txt
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate requirements/build.in -c requirements/dev.txt -o requirements/build.txt

image: setup ## Only the container image, into the cache; prints where and how big
	@$(BIN)/python -m hack.images

cluster-init: setup ## Cluster API and banlieue on the cluster of make cluster-up, by clusterctl (NAME=banlieue)
	@$(BIN)/python -m hack.cluster.clusterapi init --name $(NAME)

simulate: setup ## Seeded schedules of the whole life of VMs (SEEDS=100000, SEED=n replays one, PLANT=bug, FIRST=n)
	@$(BIN)/python -m test.simulation --workers $(WORKERS) $(if $(PLANT),--plant $(PLANT)) $(if $(SEED),--seed $(SEED),--first $(or $(FIRST),0) --seeds $(or $(SEEDS),10000))

kind-e2e: ## make e2e on a kind cluster (needs kind and Docker or Podman; CI runs make e2e instead)
	@$(MAKE) e2e E2E_CLUSTER=kind

kind-e2e-bootstrap: ## The same on an install by `banlieue bootstrap operator`, not by a stream kubectl applies
	@$(MAKE) e2e E2E_CLUSTER=kind E2E_INSTALL=bootstrap

kind-e2e-ci: ## That, and on failure the logs into out/e2e-logs
	@$(MAKE) kind-e2e-bootstrap || { $(MAKE) kind-e2e-logs; exit 1; }

kind-e2e-logs: setup ## Logs of nodes and pods of a kind cluster that is still up, into out/e2e-logs
	@E2E_CLUSTER=kind $(BIN)/python -m hack.cluster logs --name e2e out/e2e-logs

.PHONY: help-more lock image cluster-init simulate kind-e2e kind-e2e-ci kind-e2e-logs kind-e2e-bootstrap
