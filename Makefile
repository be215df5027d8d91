# `make demo` and `make test` need git, make and python3: the rest is installed on first use, and they need no network after that.
# `test-interop` and `bench` fetch RocketMQ's jars once; `test-sparks` installs older Sparks, `fuzz` tries to install atheris. On
# Debian, root also gets python3-venv and a Java where they are missing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
# Test processes; each starts a Spark of its own.
JOBS ?= 2
# Versions of Spark for test-sparks, next to the newest, which all other tests run with.
SPARKS ?= 4.1 4.2
# More for pytest, such as: make test PYTEST_ARGS="-k index -x"
PYTEST_ARGS ?=
# More for the benchmarks, such as: make bench BENCH_ARGS="--quick lookup"
BENCH_ARGS ?=

# Seconds for each target of the fuzzing, and more for it, such as: make fuzz FUZZ_ARGS="record --seed 7"
FUZZ_SECONDS ?= 60
FUZZ_ARGS ?=

INSTALLED := $(VENV)/.rmq-spark-installed
BIN := $(VENV)/bin

# Spark's driver and workers: this environment's Python, whatever is active in the shell, and a Java that Spark can use.
WITH_SPARK = home="$$(.ci/java)"; bin="$$(cd $(BIN) && pwd)"; \
	JAVA_HOME="$$home" PYSPARK_PYTHON="$$bin/python" PYSPARK_DRIVER_PYTHON="$$bin/python"
PYTEST = $(WITH_SPARK) $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

$(INSTALLED): pyproject.toml setup.cfg
	.ci/venv "$(PYTHON)" "$(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

.PHONY: venv
venv: $(INSTALLED) ## Make the virtual environment (VENV, .venv by default) and install everything

.PHONY: java
java: ## Find a Java 17 or newer, or install Debian's
	@.ci/java

.PHONY: demo
demo: $(INSTALLED) ## Run the demo
	@$(WITH_SPARK) $(BIN)/python examples/demo/demo.py

.PHONY: test
test: $(INSTALLED) ## Run the tests, less those that take minutes or need a real broker
	@$(PYTEST) -m "not slow and not interop" $(PYTEST_ARGS)

.PHONY: test-slow
test-slow: $(INSTALLED) ## Run the tests that take minutes: a cluster, every bit of a store
	@$(PYTEST) -m "slow and not interop" $(PYTEST_ARGS)

.PHONY: test-sparks
test-sparks: ## Run the Spark tests with the older versions of Spark too (SPARKS)
	@for version in $(SPARKS); do \
	  .ci/venv "$(PYTHON)" "$(VENV)-spark-$$version"; \
	  bin="$$(cd "$(VENV)-spark-$$version/bin" && pwd)"; \
	  "$$bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[test]' "pyspark==$$version.*"; \
	  echo "Spark $$("$$bin/python" -c 'import pyspark; print(pyspark.__version__)')"; \
	  JAVA_HOME="$$(.ci/java)" PYSPARK_PYTHON="$$bin/python" PYSPARK_DRIVER_PYTHON="$$bin/python" \
	    "$$bin/python" -m pytest -n $(JOBS) --dist loadfile -m "not slow" tests/spark $(PYTEST_ARGS); \
	done

.PHONY: test-interop
test-interop: $(INSTALLED) ## Run the tests with real brokers: fetches RocketMQ's jars; needs a JDK and Maven
	@$(WITH_SPARK) $(BIN)/python -m pytest -m interop $(PYTEST_ARGS)

.PHONY: test-all
test-all: $(INSTALLED) ## Run all the tests
	@$(PYTEST) $(PYTEST_ARGS)

.PHONY: fuzz
fuzz: $(INSTALLED) ## Fuzz each decoder for FUZZ_SECONDS, by coverage where atheris can be installed
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]' \
		|| echo "atheris can't be installed here"
	@$(BIN)/python -m tests.fuzz --coverage --seconds $(FUZZ_SECONDS) $(FUZZ_ARGS)

.PHONY: lint
lint: $(INSTALLED) ## Check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: format
format: $(INSTALLED) ## Format the code and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: bridge
bridge: $(INSTALLED) ## Build the bridge's jar out of its Java; needs a JDK
	$(BIN)/python -m rmq_spark.bridge.build

.PHONY: bench
bench: $(INSTALLED) ## Measure the speed
	@$(WITH_SPARK) $(BIN)/python -m benchmarks $(BENCH_ARGS)

.PHONY: wheel
wheel: $(INSTALLED) ## Build the wheel into dist/
	rm -rf build dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist

.PHONY: clean
clean: ## Remove builds, caches and what Spark leaves behind; the virtual environment stays
	rm -rf build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache artifacts derby.log metastore_db spark-warehouse
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
