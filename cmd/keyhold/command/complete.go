package command

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
)

// offered is how many completions a shell gets at most.
const offered = 200

// source gives what an argument may be, after those given before it. What is not fit for a command line is left out later.
type source func(ctx context.Context, d *admin.Desk, before []string) ([]cobra.Completion, error)

// complete has the arguments of a command completed from the store, the first by the first source and so on.
func (s *setting) complete(c *cobra.Command, sources ...source) {
	c.ValidArgsFunction = func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(sources) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return s.offer(c, sources[len(args)], args, typed)
	}
}

func (s *setting) completeFlag(c *cobra.Command, flag string, from source) {
	err := c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return s.offer(c, from, args, typed)
	})
	if err != nil {
		panic(err) // no such flag
	}
}

// fixed has a flag completed with these values.
func fixed(c *cobra.Command, flag string, values ...string) {
	if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // no such flag
	}
}

// offer asks a source. A shell that completes shows no errors, so there are none; it does not wait either.
func (s *setting) offer(c *cobra.Command, from source, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const keep = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	parent := c.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, s.env.patience)
	defer cancel()
	store, closer, err := s.attach(ctx)
	if err != nil {
		return nil, keep
	}
	defer closer.Close()
	all, err := from(ctx, s.desk(store), args)
	if err != nil {
		return nil, keep
	}
	all = slices.DeleteFunc(all, func(one cobra.Completion) bool {
		value, _, _ := strings.Cut(one, "\t")
		return !fit(value) || !strings.HasPrefix(value, typed)
	})
	return all[:min(len(all), offered)], keep
}

// described is a completion with what a shell shows beside it.
func described(value string, about ...string) cobra.Completion {
	var words []string
	for _, a := range about {
		if a != "" {
			words = append(words, clean(a))
		}
	}
	return cobra.CompletionWithDesc(value, cut(strings.Join(words, ", "), loose))
}

func (s *setting) handlers(ctx context.Context, d *admin.Desk, _ []string) ([]cobra.Completion, error) {
	all, err := d.Handlers(ctx)
	var found []cobra.Completion
	for _, h := range all {
		found = append(found, described(h.Name, h.Kind, h.Words))
	}
	return found, err
}

func (s *setting) categories(ctx context.Context, d *admin.Desk, _ []string) ([]cobra.Completion, error) {
	status, err := d.Status(ctx)
	var found []cobra.Completion
	for _, c := range status.Categories {
		found = append(found, described(c.Name, amount(c.Partitions, "partition")))
	}
	return found, err
}

func (s *setting) categoriesAndHandlers(ctx context.Context, d *admin.Desk, before []string) ([]cobra.Completion, error) {
	categories, err := s.categories(ctx, d, before)
	if err != nil {
		return nil, err
	}
	handlers, err := s.handlers(ctx, d, before)
	return append(categories, handlers...), err
}

// types are the types of events that handlers handle.
func (s *setting) types(ctx context.Context, d *admin.Desk, before []string) ([]cobra.Completion, error) {
	all, err := d.Handlers(ctx)
	var found []cobra.Completion
	for _, h := range all {
		if len(before) == 0 || before[0] == h.Name {
			found = append(found, h.Types...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), err
}

// stoppedKeys are those that an act may be about.
func (s *setting) stoppedKeys(ctx context.Context, d *admin.Desk, before []string) ([]cobra.Completion, error) {
	return keysIn(ctx, d, before[0], "halted", "parking")
}

// keys are those of the handler, or category, named before: those that are stopped first.
func (s *setting) keys(ctx context.Context, d *admin.Desk, before []string) ([]cobra.Completion, error) {
	return keysIn(ctx, d, before[0], "halted", "parking", "trying", "paused", "")
}

func keysIn(ctx context.Context, d *admin.Desk, name string, states ...string) ([]cobra.Completion, error) {
	q := admin.PartitionQuery{Handler: name, Limit: offered}
	if _, err := d.Handler(ctx, name); err != nil {
		q.Handler, q.Category = "", name
	}
	var found []cobra.Completion
	seen := map[string]bool{}
	for _, state := range states {
		q.Status = state
		page, err := d.Partitions(ctx, q)
		if err != nil {
			return found, err
		}
		for _, p := range page.Items {
			if !seen[p.Key] {
				seen[p.Key] = true
				found = append(found, described(p.Key, p.Status, p.Summary))
			}
		}
	}
	return found, nil
}

func (s *setting) deadKeys(ctx context.Context, d *admin.Desk, before []string) ([]cobra.Completion, error) {
	return letters(ctx, d, admin.Filter{Handler: before[0]}, func(l admin.DeadLetter) string { return l.Key })
}

func (s *setting) deadSequences(ctx context.Context, d *admin.Desk, before []string) ([]cobra.Completion, error) {
	return letters(ctx, d, admin.Filter{Handler: before[0], Key: before[1]}, func(l admin.DeadLetter) string { return plainCount(l.At.Sequence) })
}

func letters(ctx context.Context, d *admin.Desk, f admin.Filter, value func(admin.DeadLetter) string) ([]cobra.Completion, error) {
	page, err := d.DeadLetters(ctx, admin.DeadQuery{Filter: f, Limit: offered})
	var found []cobra.Completion
	for _, l := range page.Items {
		one := described(value(l), l.Type, l.Reason)
		if len(found) == 0 || found[len(found)-1] != one {
			found = append(found, one)
		}
	}
	return found, err
}

// deadReasons are those of dead letters, of the handler named before if one is.
func (s *setting) deadReasons(ctx context.Context, d *admin.Desk, before []string) ([]cobra.Completion, error) {
	handler := ""
	if len(before) > 0 {
		handler = before[0]
	}
	groups, _, err := d.DeadGroups(ctx, handler)
	var found []cobra.Completion
	for _, g := range groups {
		found = append(found, g.Reason)
	}
	return distinct(found), err
}

// stopReasons are those of halts and of parked events.
func (s *setting) stopReasons(ctx context.Context, d *admin.Desk, before []string) ([]cobra.Completion, error) {
	q := admin.UnitQuery{Limit: offered}
	if len(before) > 0 {
		q.Handler = before[0]
	}
	halts, err := d.Halts(ctx, q)
	if err != nil {
		return nil, err
	}
	parking, err := d.Parking(ctx, q)
	var found []cobra.Completion
	for _, h := range halts.Items {
		found = append(found, h.Reason)
	}
	for _, p := range parking.Items {
		found = append(found, p.First.Reason)
	}
	return distinct(found), err
}

func distinct(all []cobra.Completion) []cobra.Completion {
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(one cobra.Completion) bool { return one == "" })
}

// entities are the kinds, and the ids of those that were sent commands.
func (s *setting) entities(ctx context.Context, d *admin.Desk, _ []string) ([]cobra.Completion, error) {
	all, err := d.Handlers(ctx)
	var found []cobra.Completion
	for _, h := range all {
		if h.Kind != string(eventstore.EntityKind) {
			continue
		}
		found = append(found, h.Name+"/")
		page, err := d.Partitions(ctx, admin.PartitionQuery{Handler: h.Name, Limit: offered})
		if err != nil {
			return found, err
		}
		for _, p := range page.Items {
			found = append(found, h.Name+"/"+p.Key)
		}
	}
	return distinct(found), err
}

func (s *setting) jobIDs(ctx context.Context, d *admin.Desk, _ []string) ([]cobra.Completion, error) {
	page, err := d.Jobs(ctx, admin.JobQuery{Limit: offered})
	var found []cobra.Completion
	for _, j := range page.Items {
		found = append(found, described(strconv.FormatInt(j.ID, 10), j.Words))
	}
	return found, err
}
