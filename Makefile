# What a person does with this tree. `make` alone says what there is.

.DEFAULT_GOAL := help
.PHONY: help run test lint bench fuzz mutants sim soak

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Install what is missing, build, and run the agent with a pod on a private containerd
	@scripts/need-root run
	@scripts/setup run
	@cargo build --package crablet --package crablet-testkit
	@scripts/run

test: ## Install what is missing, and run every check and test
	@scripts/need-root test
	@scripts/setup test
	@$(MAKE) --no-print-directory lint
	cargo test --workspace --doc --quiet
	cargo nextest run --workspace

lint: ## Check the formatting and the lints, and that the product has no parts that are for tests
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- --deny warnings
	! cargo tree --package crablet --edges normal,features --prefix none | grep -E 'crablet-cri-sim|feature "(simulated|stand-in|testing)"'

bench: ## Measure the promises, write the figures to SPECIFICATION.md, fail if one is missed
	@scripts/need-root bench
	@scripts/setup run
	cargo build --release --package crablet
	cargo build --release --package crablet-bench --package crablet-cri-sim
	cargo run --release --quiet --package crablet-bench

soak: ## Kill the agent 50 times under 20 pods (SEED=… for other moments), the API server 100 times, its disk at each write, and send a gigabyte through exec
	@scripts/need-root soak
	@scripts/setup run
	cargo nextest run --package crablet --package crablet-apiserver --run-ignored only -E 'test(/soak_/)' --no-capture

fuzz: ## Fuzz the decoders, a minute each (scripts/fuzz TARGET SECONDS for one of them)
	@scripts/fuzz

mutants: ## Break the core in some 200 small ways, and fail if its tests miss too many (SEED=n for others)
	@scripts/mutants $(SEED)

sim: ## Run the whole agent in simulation, with faults, for two minutes of seeds (SEED=n for one, with its trace; CLUSTER=1 for that with an API server)
	@cargo run --quiet --profile sim --package crablet-simulation --bin crablet-sim -- $(if $(SEED),--seed $(SEED)) $(if $(CLUSTER),--cluster)
