package arch

import "strings"

// dependency is a module of others that this module imports.
type dependency struct {
	module string
	in     []string // paths of rows whose packages may import it; "tests" = any test and kit
	why    string   // why nowhere else
}

// dependencies is the table of them. Why each was taken at all, its licence and its upkeep: docs/adr/0002.
var dependencies = []dependency{
	{"github.com/asynkron/protoactor-go", []string{seam}, "a seam keeps its types, and its habits, from everything else (docs/adr/0001)"},
	{"modernc.org/sqlite", []string{"eventstore/sqlite/..."}, "who does not use SQLite does not link it"},
	{"modernc.org/libc", []string{"eventstore/sqlite/..."}, "SQLite's own runtime, to interrupt what runs on a connection"},
	{"golang.org/x/sys", []string{"eventstore/sqlite/...", "internal/netns"}, "the operating system's file lock; its network namespaces, in tests"},
	{"github.com/jackc/pgx/v5", []string{"eventstore/postgres/...", "internal/postgresserver", "guarantees", "examples/orders/demo", "tests"}, "who does not use PostgreSQL does not link it"},
	{"github.com/redis/go-redis/v9", []string{"transport/redis/...", "internal/redisserver", "guarantees", "examples/orders/demo", "tests"}, "who does not use Redis does not link it"},
	{"google.golang.org/grpc", []string{"transport/grpc"}, "who has one node, or nodes that do not ask one another, does not link it"},
	{"google.golang.org/protobuf", []string{"codec/...", "proto/...", "transport/redis/...", "transport/grpc", "keyholdtest", "examples/orders/...", "tests"}, "wire types end at the wire; elsewhere messages are users' own events"},
	{"github.com/hashicorp/memberlist", []string{"cluster/gossip/..."}, "who runs one node does not link it; transport/redis brings it along"},
	{"github.com/google/uuid", []string{"event", "codec/..."}, "ids are made in one place, and read in one"},
	{"github.com/spf13/cobra", []string{"cmd/keyhold/...", "examples/orders/..."}, "who does not mount the operator's command does not link it"},
	{"github.com/spf13/pflag", []string{"cmd/keyhold/command"}, "cobra's flags; only the command that defines them needs their type"},
	{"golang.org/x/term", []string{"cmd/keyhold/command"}, "is it a terminal, and how wide"},
	{"golang.org/x/text", []string{"cmd/keyhold/command"}, "how wide a character is on a terminal"},
	{"go.opentelemetry.io/otel", []string{"telemetry/...", "guarantees"}, "the observer seam keeps it from everything else; a test counts what is registered with it"},
	{"go.opentelemetry.io/otel/metric", []string{"telemetry/...", "guarantees"}, "the same"},
	{"go.opentelemetry.io/otel/trace", []string{"telemetry/..."}, "the same"},
	{"go.opentelemetry.io/otel/sdk", []string{"tests"}, "records spans in tests; programs choose their own provider"},
	{"go.opentelemetry.io/otel/sdk/metric", []string{"telemetry/prometheus", "tests"}, "the provider behind the endpoint"},
	{"go.opentelemetry.io/otel/exporters/prometheus", []string{"telemetry/prometheus"}, "who serves metrics in another way does not link it"},
	{"github.com/prometheus/client_golang", []string{"telemetry/prometheus"}, "the same: its handler and its registry"},
	{"github.com/google/go-cmp", []string{"tests"}, "compares in tests"},
	{"pgregory.net/rapid", []string{"tests"}, "property tests"},
	{"github.com/cockroachdb/datadriven", []string{"tests"}, "scripts with golden text"},
	{"go.uber.org/goleak", []string{"tests"}, "finds goroutines left behind by tests"},
}

// seam is the one package that knows the actor library.
const seam = "actors/internal/host"

// firstColumn gives what stands between backquotes in the first column of the table below a heading of a Markdown text.
func firstColumn(markdown, heading string) []string {
	var column []string
	inside := false
	for line := range strings.Lines(markdown) {
		if strings.HasPrefix(line, "#") {
			inside = strings.TrimSpace(strings.TrimLeft(line, "#")) == heading
		}
		cell, ok := strings.CutPrefix(line, "| `")
		if inside && ok {
			name, _, _ := strings.Cut(cell, "`")
			column = append(column, name)
		}
	}
	return column
}
