package command

import (
	"fmt"
	"strings"
	"testing"
)

// sessions are what an operator of the shop types, one after the other.
var sessions = map[string][]string{
	"status":           {"status"},
	"partitions-ls":    {"partitions ls", "partitions ls shipping --status halted", "partitions ls --handler billing --status parking", "partitions ls --category order --limit 3", "partitions ls clients --status halted"},
	"partitions-show":  {"partitions show shipping client-4", "partitions show billing client-6 --data", "partitions show shipping client-5", "partitions show clients client-12", "partitions show clients client-1", "partitions show shipping nobody"},
	"partitions-retry": {"partitions retry shipping client-4 --dry-run", "partitions retry shipping client-4", "partitions retry shipping client-4", "partitions retry billing client-6"},
	"partitions-skip":  {"partitions skip shipping client-4", "partitions skip shipping client-4 --reason x --expect 7", "partitions skip shipping client-4 --reason cancelled --expect 2", "partitions show shipping client-4 --waiting 2"},
	"partitions-dlq":   {"partitions dlq shipping client-7 --reason later --actor bob --dry-run", "partitions dlq shipping client-7 --reason later --actor bob", "dlq ls shipping --key client-7"},
	"partitions-pause": {"partitions pause clients client-1 --reason looking", "partitions ls clients --status paused", "partitions pause clients client-1", "partitions retry clients client-1", "partitions resume shipping client-4", "partitions resume billing client-6", "partitions resume clients client-1", "partitions resume clients client-1"},
	"partitions-all":   {"partitions retry shipping", "partitions retry shipping --all --dry-run", "partitions retry shipping --all", "partitions retry shipping --all --yes", "partitions retry shipping --type nothing --yes", "partitions skip shipping client-4 --all"},
	"why":              {"why order client-4", "why shipping client-4", "why order client-4 --handler clients", "why order nobody", "why ordre client-4"},
	"dlq-ls":           {"dlq ls", "dlq ls shipping --because poison", "dlq ls clients", "dlq ls --groups", "dlq ls clients --groups"},
	"dlq-show":         {"dlq show shipping client-1 1", "dlq show shipping client-1 1 --data", "dlq show shipping client-1 9", "dlq show shipping client-1 one", "dlq show shiping client-1 1"},
	"dlq-replay":       {"dlq replay shipping client-1 1 --dry-run", "dlq replay shipping client-1 1", "dlq replay shipping", "dlq replay shipping --all --rate 10 --dry-run", "dlq replay shipping --all --rate 10", "dlq replay shipping --all --rate 10 --yes", "dlq replay clients --all --yes"},
	"dlq-purge":        {"dlq purge shipping --all --yes", "dlq purge shipping --all --reason old", "dlq purge shipping --since 2h --reason old --yes", "jobs ls"},
	"jobs":             {"jobs ls", "dlq replay shipping --all --yes --reason fixed", "jobs ls", "jobs show 1", "jobs pause 1", "jobs pause 1", "jobs resume 1 --reason go", "jobs cancel 1", "jobs cancel 1", "jobs ls --open", "jobs watch 1", "jobs show 7", "jobs show x"},
	"handlers-ls":      {"handlers ls"},
	"handlers-pause":   {"handlers pause clients --reason deploy", "handlers ls", "handlers resume clients", "handlers resume nobody"},
	"handlers-rename":  {"handlers rename clients customers --reason naming", "handlers rename clients customers --reason naming --dry-run", "handlers rename clients customers --reason naming --yes", "handlers ls", "handlers rename customers shipping --reason naming --yes", "handlers rename customers a:b --reason naming --yes", "handlers pause customers", "handlers pause customers"},
	"handlers-rm":      {"handlers rm billing --yes", "handlers rm billing --reason gone --dry-run", "handlers rm billing --reason gone --yes", "handlers rm billing --reason gone --yes"},
	"handlers-reset":   {"handlers reset clients --reason r", "handlers reset clients --from never --reason r --yes", "handlers reset clients --from oldest --reason r --dry-run", "handlers reset clients --from oldest --reason r --yes", "handlers reset shipping --from now --reason r --yes", "handlers ls"},
	"events-cat":       {"events cat order client-4", "events cat order client-4 --no-data --limit 2", "events cat order client-4 --after 3 -o wide", "events cat order --limit 3", "events cat --limit 2", "events cat order nobody", "events cat ordre", "events cat --entity order/o-1", "events cat --entity order", "events cat order --backfill"},
	"audit":            {"audit", "partitions retry shipping client-4 --reason fixed", "handlers pause clients", "audit", "audit shipping", "audit shipping client-9", "audit -o wide"},
	"migrate":          {"migrate status", "migrate up", "migrate up --dry-run"},
	"mistakes":         {"statsu", "partitions lss", "partitions show shipping -x", "partitions show shipping -- -x", "partitions show shipping --all", "partitions show shipping", "partitions show shipping a b", "status --wacth", "status -o yaml", "partitions ls nosuch", "partitions ls --status broken", "partitions ls --limit 0x", "partitions ls --limit 100000", "partitions ls --after nonsense", "partitions ls shipping --handler clients", "dlq ls --since yesterday", "status --watch --every 0s", "status --every 5s", "handlers reset clients --to now"},
}

// Every command, as an operator of the shop sees it: what was typed, the exit code, both streams.
func TestCommands(t *testing.T) {
	t.Parallel()
	for name, lines := range sessions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden(t, "commands/"+name+".txt", setup(t).runAll(t, lines))
		})
	}
}

// runAll runs several commands and gives all that is seen of them.
func (d *desktop) runAll(t *testing.T, lines []string) string {
	t.Helper()
	var all strings.Builder
	for _, line := range lines {
		r := d.run(t, words(line)...)
		fmt.Fprintf(&all, "$ keyhold %s\n%s", line, r.out)
		if r.err != "" {
			fmt.Fprintf(&all, "--- on the error stream:\n%s", r.err)
		}
		fmt.Fprintf(&all, "--- exit %d\n\n", r.code)
	}
	return all.String()
}

func words(line string) []string { return strings.Fields(line) }
