# One command sets up (`make venv`, implied by the others), one checks, one tests, one shows it working.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The virtual environment is as good as what it was made from: its stamp carries the hash of that.
STAMP := $(VENV)/.made-from-$(shell cat requirements-dev.lock pyproject.toml src/emberkeep/__init__.py | sha256sum | cut -c1-16)
# Errors only: who waits for a test or the demonstration has no use for what pip says.
# Modules are compiled when they are first imported; most never are. PySpark comes as source: its 430 MB of jars need not
# be compressed for the wheel that pip makes of it and unpacks at once. Both save a third of the time.
# It takes about as long as all the others, so it is installed beside them. The lock is complete: nothing is resolved.
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --no-compile \
	--config-settings=--build-option=--compression=stored
# Print the lock's entries that this condition of awk on their first line chooses.
LOCKED = awk '/^[^ \#]/ { chosen = $(1) } chosen' requirements-dev.lock
# Folders that are checked as Python; some come and go with the features they belong to.
TYPED := src airflow_provider tests tools examples $(wildcard bench campaign demo)
# The tests share the cores; tests/conftest.py says which tests stay together. PYTEST_ARGS="-n 0" for one process.
# Integration tests wait for other processes a third of the time: of the usual tests, three for two cores keep them busy.
WORKERS = -n $$(( $$(nproc) * 3 / 2 )) --maxprocesses 8 --no-loadscope-reorder
LONG_WORKERS := -n logical --maxprocesses 8 --no-loadscope-reorder
PYTEST_ARGS ?=
# Tests start hundreds of Python processes: compiled modules are kept even where the environment forbids it, as containers
# do. Without them each process compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 12

.PHONY: venv
venv: $(STAMP) ## Make or bring up to date the virtual environment, from the locked dependencies

# flock: two targets of `make -j`, or two terminals, make the environment once.
$(STAMP):
	@mkdir -p $(VENV)
	exec 9>$(VENV)/.lock
	flock 9
	[ ! -e $@ ] || exit 0
	$(PYTHON) -c 'import sys; sys.exit("Emberkeep needs Python 3.11 or newer, this is %s: set PYTHON=/path/to/python3" % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	echo "making the Python environment in $(VENV) (about 2 minutes) …"
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --no-deps --require-hashes -r <($(call LOCKED,/^(pip|setuptools|wheel)==/))
	$(PIP_INSTALL) --no-deps --require-hashes -r <($(call LOCKED,/^pyspark==/)) & beside=$$!
	$(PIP_INSTALL) --no-deps --require-hashes -r <($(call LOCKED,!/^(pyspark|pip|setuptools|wheel)==/))
	wait $$beside
	$(PIP_INSTALL) --no-build-isolation --no-deps -e .
	rm -f $(VENV)/.made-from-*
	touch $@

.PHONY: java
java: ## Check for a Java 17+ runtime; install one where that is possible without asking
	@tools/ensure-java.sh

.PHONY: chromium
chromium: ## Check for chromium, which the tests of the console need; install it where that is possible without asking
	@tools/ensure-chromium.sh

.PHONY: promtool
promtool: $(STAMP) ## Check for promtool, which the tests of alert rules and dashboards need; unpack it where that is possible
	@tools/ensure-promtool.sh $(BIN)

.PHONY: slurm
slurm: ## Check for Slurm, whose jobs run task managers in the long tests; install it where that is possible without asking
	@tools/ensure-slurm.sh

.PHONY: rsyslog
rsyslog: $(STAMP) ## Check for rsyslog, which the test of log shipping needs; unpack it where that is possible
	@tools/ensure-rsyslog.sh $(BIN)/../rsyslog

.PHONY: kubernetes
kubernetes: $(STAMP) ## Build the API server and scheduler of Kubernetes for the tests of task managers as pods (5 minutes, once)
	@tools/ensure-kubernetes.sh $(BIN)/../kubernetes

.PHONY: guest
guest: $(STAMP) ## Provide a virtual machine for the test of control groups of version 2: installs qemu, unpacks Debian's kernel (100 MB)
	@tools/ensure-guest.sh $(BIN)/../guest

.PHONY: host-tools
host-tools: ## Check for what the tests with several hosts need; install it where that is possible without asking
	@tools/ensure-host-tools.sh

.PHONY: demo
demo: $(STAMP) java ## Run the flights pipeline on a local cluster, kill parts of it, compare the result
	@$(BIN)/python -m demo

.PHONY: test
test: $(STAMP) java ## Run what a change usually breaks (PYTEST_ARGS="-m 'not integration'" for the fast tests)
	@tools/ensure-promtool.sh $(BIN) || echo "The tests with promtool fail." >&2
	$(BIN)/python -m pytest $(WORKERS) $(PYTEST_ARGS)

.PHONY: flink
flink: $(STAMP) ## Fetch Flink's libraries for the long tests and for bench: 330 MB, once
	@$(BIN)/python -m tools.flink_jar

.PHONY: airflow
airflow: $(STAMP) ## Make the environment that the tests of the Airflow provider run in: 300 MB, once
	@$(BIN)/python -m tools.airflow_environment

.PHONY: jupyter
jupyter: $(STAMP) ## Make the environment whose Jupyter executes notebooks in the long tests: 100 MB, once
	@$(BIN)/python -m tools.jupyter_environment

define PUBLIC_SCRIPTS
tools/ensure-h2.sh || echo "The example with a database is skipped." >&2
$(BIN)/python -m tools.public_scripts_environment
endef
.PHONY: public-scripts
public-scripts: $(STAMP) ## Make the environment with public scripts and libraries that the long tests run: 100 MB, once
	@$(PUBLIC_SCRIPTS)

# A campaign's seed: any number; the same one repeats the campaign.
CAMPAIGN ?= $(shell date +%s)
# In which order integration tests begin: any text.
ORDER ?= $(CAMPAIGN)
# After so many minutes no further test begins; 0 sets no bound.
MINUTES ?= 25
.PHONY: test-long
test-long: $(STAMP) java chromium host-tools flink airflow jupyter ## Run the campaigns: long tests, properties and simulated worlds with fresh seeds (CAMPAIGN=<seed> repeats; MINUTES=0 for no bound)
	@tools/ensure-slurm.sh || echo "The tests with a real Slurm are skipped." >&2
	@tools/ensure-rsyslog.sh $(BIN)/../rsyslog || echo "The tests of log shipping are skipped." >&2
	( $(PUBLIC_SCRIPTS) ) || echo "The tests with public scripts are skipped." >&2
	EMBERKEEP_CAMPAIGN=$(CAMPAIGN) EMBERKEEP_CAMPAIGN_ORDER=$(ORDER) EMBERKEEP_CAMPAIGN_MINUTES=$(MINUTES) $(BIN)/python -m pytest $(LONG_WORKERS) --hypothesis-seed=$(CAMPAIGN) $(PYTEST_ARGS)

SEED ?= 1
LEVELS ?= simulation
campaign: MINUTES = 10
.PHONY: campaign
campaign: $(STAMP) ## Play random histories, keep those that fail, and report (MINUTES=10 SEED=1 LEVELS=crashes,simulation,planted,processes,load,spark,soak)
	@$(BIN)/python -m campaign --minutes $(MINUTES) --seed $(SEED) --levels $(LEVELS)

SAMPLE ?= 400
PACKAGES ?=
.PHONY: mutants
mutants: $(STAMP) ## Try small changes of the packages that decide: the fast tests must fail (SAMPLE=400 SEED=1 PACKAGES=slots,jobs)
	@$(BIN)/python -m tools.mutants --sample $(SAMPLE) --seed $(SEED) $(if $(PACKAGES),--packages $(PACKAGES))

.PHONY: check
check: $(STAMP) ## Lint, format, types, import rules, documentation, commit messages
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict $(TYPED)
	PYTHONPATH=airflow_provider/src $(BIN)/lint-imports
	$(BIN)/python -m tools.check_docs
	$(BIN)/python -m tools.check_commits

RECORDING := tests/unit/cli/monitoring/recorded.yml
.PHONY: recording
recording: $(STAMP) java ## Record again what /metrics of a cluster in trouble has, for the tests of the alert rules
	@$(BIN)/python -m tools.metrics_recording $(RECORDING)

SCREENSHOTS ?= screenshots
.PHONY: screenshots
screenshots: $(STAMP) java chromium ## Take pictures of each page of the console in both themes, also of a cluster in trouble (SCREENSHOTS=<directory>)
	@$(BIN)/python -m tools.screenshots $(SCREENSHOTS)
	@$(BIN)/python -m tools.trouble_screenshots $(SCREENSHOTS)

.PHONY: bench
bench: $(STAMP) java ## Measure, and write a table and JSON
	@$(BIN)/python -m bench

.PHONY: format
format: $(STAMP) ## Format the code, mend what ruff can mend, wrap the documentation
	@$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python -m tools.wrap_docs

# pip-compile writes this command, not its own with a machine's paths, into the locks' header.
LOCK := CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe \
	--no-emit-index-url --no-emit-find-links --no-emit-trusted-host
.PHONY: lock
lock: ## Lock the dependencies again after a change in pyproject.toml (LOCK_ARGS=--upgrade for newer ones)
	@$(LOCK) $(LOCK_ARGS) --extra connect --extra dev --extra kubernetes --extra object-store --extra opentelemetry -o requirements-dev.lock pyproject.toml
	$(LOCK) -c requirements-dev.lock -o requirements.lock pyproject.toml
	$(LOCK) $(LOCK_ARGS) -o requirements-audit.lock requirements-audit.in
	$(LOCK) $(LOCK_ARGS) --extra test -o requirements-airflow.lock airflow_provider/pyproject.toml
	$(LOCK) $(LOCK_ARGS) -c requirements-dev.lock -o requirements-jupyter.lock requirements-jupyter.in
	$(LOCK) $(LOCK_ARGS) -c requirements-dev.lock -o requirements-public-scripts.lock requirements-public-scripts.in

# The tools that look at the locks have many dependencies of their own, so they get an environment of their own.
AUDIT := $(VENV)/audit-$(shell sha256sum requirements-audit.lock | cut -c1-16)
$(AUDIT)/.made: | $(STAMP)
	@rm -rf $(VENV)/audit-*
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install -qq --disable-pip-version-check --no-input --no-compile --require-hashes \
		-r requirements-audit.lock
	touch $@

SBOM := dist/emberkeep.cdx.json
.PHONY: sbom
sbom: $(AUDIT)/.made ## Write dist/emberkeep.cdx.json: all dependencies with versions and hashes (CycloneDX)
	@mkdir -p $(dir $(SBOM))
	$(AUDIT)/bin/python -W ignore -m cyclonedx_py requirements --pyproject pyproject.toml --output-reproducible \
		--output-format JSON --validate --output-file $(SBOM) requirements.lock
	echo "$(SBOM) lists what requirements.lock installs"

# --strict: a dependency about which nothing could be learned is a failure, too. The locks disagree about versions, so
# each is checked on its own.
.PHONY: audit
audit: $(AUDIT)/.made ## Check the locked dependencies against PyPI's known vulnerabilities (needs pypi.org)
	@for lock in requirements.lock requirements-dev.lock requirements-airflow.lock requirements-airflow-spark.lock \
		requirements-jupyter.lock requirements-public-scripts.lock; do \
		$(AUDIT)/bin/pip-audit --strict --progress-spinner off --disable-pip --require-hashes \
			-r $$lock $(AUDIT_ARGS) || exit 1; done

.PHONY: clean
clean: ## Remove everything that the other targets made
	@rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
		spark-warehouse metastore_db derby.log demo-run
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
