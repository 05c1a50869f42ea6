# The first target that needs .venv creates it from the locked requirements; later runs use it as long as these are unchanged.
# PYTHON=python3.12 chooses the interpreter, ARGS="..." is passed to the command, JOBS=2 runs two tests at once.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test test-versions fuzz check engines bench bench-http bench-spark bench-worker attack clean lock FORCE

# Some containers forbid Python to keep what it has compiled. Then each of the thousands of processes that the tests
# start, Spark's too, compiles all of tampu again.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 3# on two cores: a quarter of the time of the tests is waiting for leases, kills and servers
PEERS := postgres redis celery arq
UV_COMPILE = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-header --no-emit-index-url --no-emit-find-links

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: $(VENV)/.run ## Show what tampu does: a queue with its console, then the lake (ARGS="--fast" or "--no-lake" for less)
	@TAMPU_DEMO_INSTALL="tools/venv lake" $(BIN)/tampu demo $(ARGS)

test: $(VENV)/.dev ## Run the tests (ARGS="-k name" to choose)
	@tools/servers
	@$(BIN)/python -m pytest -n $(JOBS) --dist=worksteal --durations=20 $(ARGS)

test-versions: $(VENV)/.dev ## Run the engines' tests on other versions of their servers (ARGS="13 redis6" to choose)
	@tools/servers
	@tools/test-versions $(ARGS)

fuzz: $(VENV)/.dev ## Run the tests that draw something, from new seeds and longer (EXAMPLES=5000 ARGS=tests/model)
	@tools/servers
	@HYPOTHESIS_PROFILE=fuzz TAMPU_MODEL_EXAMPLES=$(or $(EXAMPLES),600) TAMPU_OPENAPI_EXAMPLES=$(or $(EXAMPLES),600) \
		$(BIN)/python -m pytest -n $(JOBS) --dist=worksteal $(ARGS)

check: $(VENV)/.dev ## Lint, format, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src tests bench examples
	$(BIN)/lint-imports

engines: $(VENV)/.dev ## Run the conformance suite and write docs/reference/engines.md
	@tools/servers
	@$(BIN)/python -m tests.conformance.matrix

bench: $(VENV)/.dev ## Measure, side by side with peers (ENGINE=embedded, postgres, mariadb or redis; all when not given)
	@tools/servers
	@$(BIN)/python -m bench $(if $(ENGINE),--engine $(ENGINE)) $(ARGS)

bench-spark: $(VENV)/.dev ## Measure the Spark side (ARGS="--only read --quick")
	@$(BIN)/python -m bench.spark $(ARGS)

bench-http: $(VENV)/.dev ## Measure the server, beside a bare handler and the library (ARGS="--quick")
	@$(BIN)/python -m bench.http $(ARGS)

attack: $(VENV)/.dev ## Attack a server that is started for it, and print what held (ARGS="--quick" or "--soak 600")
	@$(BIN)/python -m bench.attack $(ARGS)

bench-worker: $(VENV)/.dev ## Measure tasks and workers beside other task queues (ARGS="--only redis --quick")
	@tools/servers
	@$(BIN)/python -m bench.worker $(ARGS)

clean: ## Remove the environment, the caches and what was built
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	@find src tests $(wildcard bench examples) -name __pycache__ -prune -exec rm -rf {} +

# run.txt and lake.txt are held to the versions of dev.txt, so one environment serves all. run.txt is small: who tries
# tampu sees a queue first. lake.txt is what the lake needs besides, with Spark and Java.
lock: ## Pin the newest versions of all requirements, with hashes
	@tools/venv
	@test -x $(BIN)/uv || $(BIN)/python -m pip install -qq --disable-pip-version-check uv
	@$(UV_COMPILE) pyproject.toml --group dev --extra bench --extra spark --extra postgres --extra redis --extra mariadb --extra client --extra server --extra otel --extra policies --extra mcp --extra celery --extra django --extra codecs --output-file requirements/dev.txt
	@$(UV_COMPILE) pyproject.toml --group build --extra postgres --extra redis --extra mariadb --extra client --extra server --extra otel --extra policies --extra mcp --extra codecs --constraint requirements/dev.txt --output-file requirements/run.txt
	@$(UV_COMPILE) pyproject.toml --extra spark --constraint requirements/dev.txt --output-file requirements/lake.txt
	@for peers in $(PEERS); do $(UV_COMPILE) --group peers-$$peers --output-file requirements/peers-$$peers.txt; done

# dev holds all that run and lake hold.
$(VENV)/.dev: requirements/dev.txt pyproject.toml
	@tools/venv dev
	@touch $(VENV)/.run $(VENV)/.lake $@

$(VENV)/.run: requirements/run.txt pyproject.toml
	@tools/venv run
	@touch $@

# An environment that was copied here from elsewhere, or lost its interpreter, is made again.
ifneq ($(shell test -x $(BIN)/python && cat $(VENV)/.home 2>/dev/null),$(CURDIR))
$(VENV)/.dev $(VENV)/.run: FORCE
endif
