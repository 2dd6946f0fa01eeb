PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help demo test serve lint docs links model fuzz crash soak screenshots clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 20

demo: $(INSTALLED) ## Run the shop, kill a worker, and audit every order
	@$(BIN)/python -m example_project.demo

test: $(INSTALLED) ## Run the whole test suite
	@$(PYTEST) -n 2 --dist loadgroup

serve: $(INSTALLED) ## Start the shop and a worker, and print their URLs
	@$(BIN)/python -m example_project.serve $${PORT:+--port $$PORT}

lint: $(INSTALLED) ## Check style, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(INSTALLED) ## Build the documentation; warnings and broken internal links are errors
	$(BIN)/python -m sphinx -W --keep-going -q -d build/doctrees -b html docs build/html
	@echo "Open build/html/index.html"

links: $(INSTALLED) ## Check the external links of the documentation over the network
	$(BIN)/python -m sphinx -q -d build/doctrees -b linkcheck docs build/links

model: $(INSTALLED) ## Run the model test with many more examples
	@seed=$${SEED:-$$(date +%s)}; echo "Seed $$seed: repeat this run with make model SEED=$$seed"; \
	$(PYTEST) tests/model --hypothesis-profile thorough --hypothesis-seed $$seed \
		-o faulthandler_timeout=0

fuzz: $(INSTALLED) ## Send REQUESTS=100000 generated requests to the HTTP broker
	@MQLITE_TEST_FUZZ_REQUESTS=$${REQUESTS:-100000} $(PYTEST) tests/http/test_generated_requests.py \
		-o faulthandler_timeout=0

crash: $(INSTALLED) ## Run the tests that kill real processes, with 200 kills each, and other long tests
	@MQLITE_TEST_CRASH_ROUNDS=$${ROUNDS:-200} MQLITE_TEST_IDLE_LOOKS=600 MQLITE_TEST_MANY=10000 \
	MQLITE_TEST_SCHEDULE_DAYS=7 \
	$(PYTEST) tests/crash tests/concurrency/test_limits.py tests/concurrency/test_schedules.py \
		tests/integration/test_registry.py tests/integration/test_event_loop.py \
		-o faulthandler_timeout=0

soak: $(INSTALLED) ## Run a producer and a worker for MINUTES=30, and measure their growth
	@$(BIN)/python -m benchmarks.soak --minutes $${MINUTES:-30}

screenshots: $(INSTALLED) ## Rewrite the screenshots of docs/admin.md; needs chromium
	@MQLITE_SCREENSHOTS=docs/screenshots $(PYTEST) tests/browser

clean: ## Remove the virtual environments and every cache
	rm -rf .venv .nox .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "django-mqlite needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1)."; \
		echo "Choose another interpreter: make PYTHON=python3.12"; exit 1; }
	@echo "Setting up .venv ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,docs]'
	@touch $@
