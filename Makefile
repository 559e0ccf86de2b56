# Every target makes the environment it needs, once, and again when setup.py changes.
#
#   make demo             make test GPU=1 (CUDA 13 wheels)      make test GPU=12 (CUDA 12 wheels)
#   make demo GPU=emulated                    on a GPU that is emulated; it needs a C compiler, and no GPU
#   make gpu-quick PYTHON=python3 VENV=system   use that interpreter as it is: nothing is installed, what it lacks is said
#   make tutorials        make tutorials LAB=--no-browser               the notebooks; on an emulated GPU where one is wanted
#   make test WORKERS=8   tests side by side      make test WORKERS=0   one after another
#   make test-vdnn        one paper's tests: vdnn, vdnnpp, superneurons, accudnn, combined
#   make mutants SEED=7 COUNT=20   20 random faults of that seed; by default 140 of seed 1
#   make test-emulated SANITIZE=1   with AddressSanitizer in the emulated GPU's driver

PYTHON ?= python3
VENV ?= .venv
GPU ?=
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo tutorials test test-fast test-emulated compilers matrix notebooks seconds house timing campaign faults mutants lint docs slides course gpu gpu-quick gpu-tests gpu-bench gpu-papers environment clean coverage lowest wheel laptops
MAKEFLAGS += --no-print-directory

# The emulated GPU's own driver under AddressSanitizer.
SANITIZED := $(if $(SANITIZE),env REFIMPL_DRIVER_FLAGS="-g -fsanitize=address" \
	ASAN_OPTIONS=detect_leaks=0:handle_segv=0:alloc_dealloc_mismatch=0 \
	LD_PRELOAD="$$(cc -print-file-name=libasan.so) $$(cc -print-file-name=libstdc++.so)")

# Extras by target: the demo's, the tests' and the docs'. GPU=1 and GPU=12 add the CUDA wheels.
ifneq ($(filter-out 1 13 12 emulated,$(GPU)),)
$(error GPU=$(GPU): give GPU=1 for the CUDA 13 wheels, GPU=12 for the CUDA 12 wheels, or GPU=emulated)
endif
ifeq ($(GPU),12)
CUDA_EXTRA := cu12
TEST_EXTRA := test12
TUTORIALS_EXTRA := tutorials12
else
CUDA_EXTRA := cu13
TEST_EXTRA := test
TUTORIALS_EXTRA := tutorials
endif
RUN_EXTRAS := $(if $(GPU),[$(CUDA_EXTRA)])
WHEELS := $(if $(GPU),-$(CUDA_EXTRA))

# Python keeps what it compiled, whatever the shell says: a command starts in a third of the time.
export PYTHONDONTWRITEBYTECODE :=

ifeq ($(VENV),system)
PY := PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON)
RUN :=
TEST :=
DOCS :=
else
PY := $(VENV)/bin/python
RUN := $(VENV)/.has-refimpl$(WHEELS)
TEST := $(VENV)/.has-$(TEST_EXTRA)
DOCS := $(VENV)/.has-docs
endif

help: ## say what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 18

demo: $(RUN) ## plan VGG-16 for 12 GiB under each paper, train a small network in a third of its memory, draw into demo/
	@$(PY) -m refimpl demo $(if $(filter emulated,$(GPU)),--backend emulated)

tutorials: $(if $(TEST),$(VENV)/.has-$(TUTORIALS_EXTRA)) ## open the tutorials in JupyterLab, with all that they use but PyTorch
	@$(PY) -c 'import torch' 2>/dev/null || echo "08 and 10 use PyTorch, which is not installed: $(PY) -m pip install torch"
	@$(PY) -m jupyterlab $(LAB) tutorials

course: $(RUN) ## write a student's repository, labs and handouts without solutions: make course DIR=../labs
	@$(PY) -m tutorials.course $(or $(DIR),$(error give a folder: make course DIR=../labs))

PYTEST := -m pytest -n $(WORKERS) --dist worksteal

test: $(TEST) ## run every test but the campaigns and the rest of the matrices
	@$(PY) $(PYTEST)

matrix: $(TEST) ## run the cases that `make test` leaves out, of tests that have many
	@$(PY) $(PYTEST) -m matrix

notebooks: $(TEST) ## run the notebooks that `make test` leaves out, and compare what they print with what is stored
	@$(PY) $(PYTEST) -q -m matrix tests/test_tutorials.py

seconds: $(TEST) ## run the tests of `make test`, and say where the processor's seconds go, by room
	@$(PY) $(PYTEST) --seconds

house: $(TEST) ## say how many lines each room has, beside its target
	@$(PY) -m tests.house

test-fast: $(TEST) ## run every test but the slow ones
	@$(PY) $(PYTEST) -q -m "not slow"

PAPERS := vdnn vdnnpp superneurons accudnn combined
.PHONY: $(PAPERS:%=test-%)
$(PAPERS:%=test-%): test-%: $(TEST)
	@$(PY) $(PYTEST) -q -m $*

test-emulated: $(TEST) ## run every test that needs a GPU on an emulated one, every kernel from its PTX, and read its machine code
	@$(SANITIZED) $(PY) $(PYTEST) --device emulated -m "gpu or emulated or ptx"

# An environment for each Numba CUDA: make compilers COMPILERS=numba-cuda-mlir makes one of them alone.
COMPILERS ?= numba-cuda numba-cuda-mlir numba
WANTS_numba-cuda := numba 'numba-cuda[cu13]' 'cuda-toolkit==13.0.*'
WANTS_numba-cuda-mlir := numba 'numba-cuda-mlir[cu13]' 'cuda-toolkit==13.0.*'
WANTS_numba := numba 'nvidia-nvvm==13.0.*'
compilers: $(COMPILERS:%=.venv-%/bin/python) ## run every plain kernel, on an emulated GPU, under numba-cuda, numba-cuda-mlir and Numba's own target: an environment each
	@rm -f .venv-bits
	@$(foreach each,$(COMPILERS),PYTHONPATH="$(CURDIR)" REFIMPL_RACES=never .venv-$(each)/bin/python -W ignore -m kernels.targets.emulated \
		tests/kernels/three_numbas.py $(each) .venv-bits || exit 1;)

$(foreach each,numba-cuda numba-cuda-mlir numba,.venv-$(each)/bin/python): .venv-%/bin/python:
	@$(PYTHON) -m venv .venv-$*
	@$@ -m pip install --quiet --disable-pip-version-check $(WANTS_$*)

timing: $(TEST) ## on a GPU, hold what copies hide and what a launch costs the host to bounds; no other target does
	@$(PY) -m pytest -q -m timing --device gpu

campaign: $(TEST) ## run the long searches, and every property on newly drawn examples: hours
	@$(PY) $(PYTEST) -v -m "campaign or hypothesis"

faults: $(TEST) ## plant faults in copies of the tree, one on each core at a time, and show which tests catch them
	@$(PY) -m tests.faults.plant --write

SEED ?= 1
COUNT ?= 140
mutants: $(TEST) ## make random faults, one on each core at a time, and count which tests catch them: hours
	@$(PY) -m pip install --quiet --disable-pip-version-check coverage
	@$(PY) -m tests.faults.reached --workers $(WORKERS)
	@$(PY) -m tests.faults.mutants --seed $(SEED) --count $(COUNT)

coverage: $(TEST) ## run the fast tests, and say which lines of kernels/ and refimpl/ none of them runs
	@$(PY) -m pip install --quiet --disable-pip-version-check coverage
	@$(PY) -m coverage run --source=kernels,refimpl -m pytest -q -m "not slow"
	@$(PY) -m coverage report --skip-covered --sort=cover

# Every requirement of setup.py that has a least version, in that version.
LOWEST = import re; from importlib.metadata import requires; \
	print(*sorted({f"{one[1]}=={one[2]}" for one in (re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", r) for r in requires("refimpl")) if one}))

lowest: ## run the fast tests with the oldest versions that setup.py admits
	@$(MAKE) environment VENV=.venv-lowest
	@.venv-lowest/bin/python -m pip install --quiet $$(.venv-lowest/bin/python -c '$(LOWEST)')
	@$(MAKE) test-fast VENV=.venv-lowest

wheel: ## build the wheel in dist/, install it in an environment of its own, and try it there
	@rm -rf build dist
	@$(PYTHON) -m venv dist/try
	@dist/try/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@dist/try/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	@cd dist/try && bin/refimpl --version && bin/refimpl plan vgg16 --policy vdnn-all --budget 12GiB && \
		bin/refimpl run tiny-vgg --batch 64 --budget 8MiB --policy vdnn-dyn --data digits --steps 3 --backend cpu
	@ls dist/*.whl

laptops: $(TEST) ## ask whether every requirement has a wheel on Linux, macOS and Windows; it needs a network: minutes
	@$(PY) tests/elsewhere/wheels.py

predictions: $(TEST) ## compare AccUDNN's predicted images a second with measured ones on this CPU: minutes
	@$(PY) -m tests.refimpl.accudnn.real_check

lint: $(TEST) ## ruff and mypy
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

docs: $(TEST) $(DOCS) ## build the documentation into docs/_build/html; a warning is an error
	@$(PY) -m sphinx -W --keep-going -q -j auto -b html docs docs/_build/html
	@$(PY) docs/widths.py docs/_build/html
	@echo "docs/_build/html/index.html"

slides: $(TEST) ## make the decks of the course, HTML for any browser, and figures for slides, in docs/_build/slides: minutes
	@$(PY) docs/slides.py

# Each part writes a row as soon as it is measured, into ROWS, and goes on where it was stopped.
gpu: gpu-tests gpu-bench gpu-papers ## on a GPU: gpu-tests, gpu-bench and gpu-papers
gpu-quick: ## on a GPU, in minutes: are kernels and presets right, how fast are copies, two networks, a product
gpu-tests: ## on a GPU: every test that needs one
gpu-bench: ## on a GPU: every case of the bench, written into the pages
gpu-papers: ## on a GPU: what each paper claims, measured
gpu-quick gpu-tests gpu-bench gpu-papers: gpu-%: $(if $(TEST),$(VENV)/.has-$(TEST_EXTRA))
	@$(PY) -m tests.gpu.by_piece $* $(if $(ROWS),--rows $(ROWS)) $(if $(ONLY),--only "$(ONLY)")

environment: $(TEST) $(DOCS) ## make the environment of the tests and the documentation, and stop there

clean: ## remove the environment and everything that was built
	rm -rf $(if $(filter-out system,$(VENV)),$(VENV)) build dist *.egg-info demo docs/_build docs/_generated
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "$(PYTHON) is missing or older than 3.10; name another one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make environments; on Debian and Ubuntu: sudo apt install python3-venv"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.has-refimpl$(WHEELS): setup.py | $(VENV)/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check --editable ".$(RUN_EXTRAS)"
	@touch $@

$(VENV)/.has-test $(VENV)/.has-test12 $(VENV)/.has-docs $(VENV)/.has-tutorials $(VENV)/.has-tutorials12: $(VENV)/.has-%: setup.py | $(VENV)/bin/python
	$(PY) -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@touch $@
