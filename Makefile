# `make` alone prints what there is to make. It needs Go, a C compiler for the race detector, and the programs of `make services`.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

TOOL := go tool -modfile=tools/go.mod
MODULES := tools bench# beside the root; what users import must not inherit their dependencies
each-module = for m in $(MODULES); do (cd $$m && set -x && $(1)) || exit 1; done
TIMEOUT ?= 60m
FUZZTIME ?= 5s
TRANSPORT ?= local# or redis
STORE ?= sqlite# or postgres
NODES ?= 0# as many as the demo has where there can be several; or 2 to 9

.DEFAULT_GOAL := help
.PHONY: help build services test demo record-release lint generate vuln fuzz bench cover clean
.PHONY: cc lint-format lint-vet lint-static lint-proto lint-generated lint-licences lint-modules

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## compile every package
	go build ./...

# Debian starts what it installs, unless policy-rc.d says no: only the programs are wanted. The network, or another apt-get, may be in the way for a moment.
services: ## what tests start for themselves, Redis and PostgreSQL, and what makes hosts for them: installed on Debian as root; elsewhere it says what is missing
	@missing=; \
	test -n "$$KEYHOLD_REDIS_SERVER" || command -v redis-server valkey-server >/dev/null || missing="redis-server"; \
	test -n "$$KEYHOLD_POSTGRES_BIN" || command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$$missing postgresql"; \
	test "$$(uname)" != Linux || { command -v ip && command -v bridge; } >/dev/null || missing="$$missing iproute2"; \
	test -n "$$missing" || exit 0; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
		echo "not installed:" $$missing; \
		echo "tests that need it are skipped. Install it (Debian: apt-get install" $$missing"; macOS: brew install redis postgresql),"; \
		echo "or name what you have: KEYHOLD_REDIS_SERVER=.../redis-server KEYHOLD_POSTGRES_BIN=.../bin. No service has to run."; \
		exit 0; \
	fi; \
	policy=/usr/sbin/policy-rc.d; ours=; \
	if [ ! -e $$policy ]; then ours=$$policy; printf '#!/bin/sh\nexit 101\n' >$$policy; chmod +x $$policy; fi; \
	trap 'test -z "$$ours" || rm -f "$$ours"' EXIT; \
	set -x; for try in 1 2 3; do \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y -qq --no-install-recommends $$missing && exit 0; \
		sleep 10; \
	done; exit 1

test: cc services ## the whole suite, with the race detector, in random order (the seed is printed)
	go test -race -count=1 -shuffle=on -timeout $(TIMEOUT) $$(go list ./... | grep -v /guarantees$$)
	go test -race -count=1 -shuffle=on -parallel 1 -timeout $(TIMEOUT) ./guarantees # many processes under load, each with its deadlines: nothing beside them
	go test -count=1 -shuffle=on ./cluster/gossip # what the race detector does not survive
	go test -race -count=1 -tags next ./examples/orders # its next release
	@$(call each-module,go test -count=1 ./...)

demo: ## the example shop, killed and counted: make demo; on several nodes: make demo NODES=3 TRANSPORT=redis STORE=postgres
	go run ./examples/orders/demo -transport $(TRANSPORT) -store $(STORE) -nodes $(NODES) $(ARGS)

record-release: ## what the example has stored, for all releases to come to be tested with: make record-release RELEASE=2
	@test -n "$(RELEASE)" || { echo "which release? make record-release RELEASE=2"; exit 1; }
	go test ./examples/orders -count=1 -run '^TestRecordRelease$$' -record $(RELEASE)

lint: lint-format lint-vet lint-static lint-proto lint-generated lint-licences lint-modules ## format, vet, staticcheck, buf, generated code, licences, go.mod

lint-format: # gofmt
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "not formatted, run gofmt -w:"; echo "$$out"; exit 1; fi

lint-vet:
	go vet ./...
	go vet -tags next ./examples/orders/...
	@$(call each-module,go vet ./...)

lint-static:
	$(TOOL) staticcheck ./...

lint-proto: # buf takes minutes to compile, so only where there is something for it
	@if [ -n "$$(git ls-files '*.proto')" ]; then set -x; $(TOOL) buf lint; else echo "no .proto files to lint"; fi

lint-generated: # generating must change nothing
	@sum() { git ls-files -z --cached --others --exclude-standard | xargs -0 cat 2>/dev/null | cksum; }; \
	before=$$(sum); $(MAKE) --no-print-directory generate; after=$$(sum); \
	if [ "$$before" != "$$after" ]; then echo "generated code was out of date; look at what 'make generate' changed, and commit it:"; git status --short; exit 1; fi

lint-licences:
	go run -C tools ./licences ..

lint-modules:
	go mod tidy -diff
	@$(call each-module,go mod tidy -diff)

generate: ## write generated code anew
	go generate ./...
	@if [ -n "$$(git ls-files '*.proto')" ]; then set -x; $(TOOL) buf generate; fi

vuln: ## known vulnerabilities of what is linked; needs the network's vulnerability database
	@out=$$($(TOOL) govulncheck ./... 2>&1); status=$$?; echo "$$out"; \
	case "$$out" in *"fetching vulnerabilities"*) echo "NOT CHECKED: the vulnerability database could not be reached";; esac; \
	exit $$status

fuzz: ## each fuzz test for a short while: make fuzz FUZZTIME=1m
	@go test -list '^Fuzz' ./... | awk '/^Fuzz/ { names[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print names[i], $$2; n = 0 }' | \
	while read -r name pkg; do (set -x; go test -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) "$$pkg") || exit 1; done

bench: ## what it costs, beside the floor measured in the same run: tables, and JSON in bin/
	@mkdir -p bin
	@for d in bench/cmd/*/; do n=$$(basename $$d); (set -x; go run -C bench ./cmd/$$n -json ../bin/$$n.json) || exit 1; done

cover: ## coverage by function, the total last
	@mkdir -p bin
	go test -count=1 -coverpkg=./... -coverprofile=bin/cover.out ./...
	go tool cover -func=bin/cover.out

clean: ## remove what these targets made
	rm -rf bin tmp

cc:
	@command -v $$(go env CC) >/dev/null || { \
		echo "no C compiler ($$(go env CC)), which the race detector needs: install one (Debian: apt-get install gcc libc6-dev),"; \
		echo "or run the suite without it: go test ./..."; exit 1; }
