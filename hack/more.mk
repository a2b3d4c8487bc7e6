# Targets that are needed now and then; `make help-more` lists them.

help-more: ## Show these
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' hack/more.mk

lock: ## Renew the hashed requirement locks (needs uv)
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml --group dev -o requirements/dev.txt
	@uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml -o requirements/run.txt

image: setup ## Only the container image, into the cache; prints where and how big
	@$(BIN)/python -m hack.images

simulate: setup ## Seeded schedules of the whole life of VMs (SEEDS=100000, or SEED=n to replay one)
	@$(BIN)/python -m test.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),10000))

.PHONY: help-more lock image simulate
