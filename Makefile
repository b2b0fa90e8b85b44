# The two commands a new user needs are `make quickstart` and `make test`; `make help` lists the rest.
# TEXT=folder chooses the text of the quickstart; JOBS=n the number of compilers at once.
.DEFAULT_GOAL := help
.PHONY: help quickstart build test test-full cuda-check bench format asan clean distclean

help: ## This list
	@echo "Sauropod: make a language model of your own. Start with:  make quickstart"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{printf "  make %-12s %s\n", $$1, $$2}'

quickstart: ## From text to a trained model that writes, in 6 minutes (TEXT=folder for your own text)
	@scripts/setup
	@scripts/quickstart $(if $(TEXT),--text "$(TEXT)")

build: ## Install what is missing and build build/release/sauropod
	@scripts/setup

test: ## Build with the tests and run them (at most 30 minutes on two cores from nothing)
	@scripts/test

test-full: ## The same, with the tests that take long
	@scripts/test --full

cuda-check: ## Compile and link everything for a GPU, without one (its own .venv-cuda, 5.4 GB)
	@scripts/setup --cuda --tests

bench: ## Training speed and memory beside PyTorch (about an hour on two cores)
	@scripts/setup --tests
	@scripts/bench

asan: ## Build and run the tests under the address and undefined-behaviour sanitizers
	@scripts/setup --tests --no-build
	@cmake --preset asan && cmake --build --preset asan && ctest --preset asan -L room

format: ## Lay out the C++ by .clang-format
	@command -v clang-format >/dev/null || { echo "format: clang-format is missing (Debian: clang-format)"; exit 1; }
	@git ls-files '*.cpp' '*.h' | xargs clang-format -i

clean: ## Remove what was built (build/)
	rm -rf build

distclean: clean ## Remove what was installed here too (.venv, .venv-cuda, .cache); runs/ stays
	rm -rf .venv .venv-cuda .deps .cache
