# What a person does with this tree. `make` alone says what there is.

.DEFAULT_GOAL := help
.PHONY: help run test lint bench conformance deb drain fuzz mutants sim soak swap vm

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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

deb: ## Build the Debian package that puts crablet in the kubelet's place (VERSION=… for another version than the crates')
	cargo build --release --package crablet
	@scripts/deb

conformance: ## Run upstream's node conformance with upstream's programs (LAB_BIN=directory; NODE=1 for its suite for nodes; FOCUS=, SKIP=, KUBELET= for others)
	@scripts/need-root conformance
	@scripts/setup conformance
	cargo build --release --package crablet
	cargo build --package crablet-testkit
	@scripts/conformance $(if $(NODE),--node) '$(FOCUS)' '$(SKIP)'

drain: ## Drain a node of the Go kubelet to one of ours beside it, and back (LAB_BIN=directory)
	@scripts/need-root drain
	@scripts/setup conformance
	cargo build --release --package crablet
	cargo build --package crablet-testkit
	@scripts/conformance --drain

soak: ## Kill the agent 50 times under 20 pods (SEED=… for other moments), the API server 100 times, its disk at each write, hold 10,000 slow connections to it, and send a gigabyte through exec
	@scripts/need-root soak
	@scripts/setup run
	cargo nextest run --package crablet --package crablet-apiserver --run-ignored only -E 'test(/soak_/)' --no-capture

swap: ## Swap the Go kubelet and crablet under live pods (GO_KUBELET=program; SWAPS=20 times, KUBEBUILDER_ASSETS= for a real API server)
	@scripts/need-root swap
	@scripts/setup run
	GO_KUBELET='$(GO_KUBELET)' cargo nextest run --package crablet --run-ignored only -E 'test(/swap_of_/)' --no-capture

fuzz: ## Fuzz the decoders, a minute each (scripts/fuzz TARGET SECONDS for one of them)
	@scripts/fuzz

mutants: ## Break the core in some 200 small ways, and fail if its tests miss too many (SEED=n for others)
	@scripts/mutants $(SEED)

sim: ## Run the whole agent in simulation, with faults, for two minutes of seeds (RUNS=n for so many seeds; SEED=n for one, with its trace; CLUSTER=1 for that with an API server)
	@cargo run --quiet --profile sim --package crablet-simulation --bin crablet-sim -- $(if $(RUNS),--runs $(RUNS)) $(if $(SEED),--seed $(SEED)) $(if $(CLUSTER),--cluster)

vm: ## Boot a machine with systemd, cgroup v2 and little memory, and run the released program in it under pressure (TEST=words of names; GO_KUBELET=program to swap it and ours there)
	@scripts/need-root vm
	@scripts/setup vm
	cargo build --release --package crablet
	@scripts/vm $(TEST)
