# sand-boxer: `make help` lists what there is.
SHELL := /bin/bash
.DEFAULT_GOAL := help
CARGO ?= cargo
PREFIX ?= $(HOME)/.local

.PHONY: help run test check bench install clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

run: ## Build, then create, use, inspect and destroy a sandbox
	@scripts/setup build
	@$(CARGO) build --release --locked --bin sandboxer
	@scripts/demo target/release/sandboxer

test: ## Run everything: format, lints, documentation, all tests
	@scripts/setup test
	@scripts/test

check: ## The quick part of `make test`: format, lints, documentation
	@scripts/setup build
	@scripts/check

bench: ## Measure against bubblewrap, runc, crun and docker; writes bench/results/
	@scripts/setup bench
	@scripts/bench

install: ## Install the `sandboxer` command into $(PREFIX)/bin
	@scripts/setup build
	@$(CARGO) build --release --locked --bin sandboxer
	@install -D -m 0755 target/release/sandboxer $(PREFIX)/bin/sandboxer
	@echo "installed $(PREFIX)/bin/sandboxer"

clean: ## Remove what was built
	@$(CARGO) clean
