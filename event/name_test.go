package event_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
)

// layouts are the ways in which an application may write its names.
var layouts = map[string]event.Names{
	"plain":      {},
	"cluster":    {Cluster: true},
	"namespace":  {Namespace: "prod"},
	"both":       {Namespace: "prod", Cluster: true},
	"own suffix": {Keys: event.KeyRules{BackfillSuffix: "late"}},
	"everything": {Namespace: "order", Cluster: true, Keys: event.KeyRules{BackfillSuffix: "late"}},
}

func TestNamesAreWrittenAsDocumented(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name           event.Name
		plain, cluster string
	}{
		{event.Name{Kind: event.NamePartition, Owner: "order", Key: "client-123"}, "order:client-123", "order:{client-123}"},
		{event.Name{Kind: event.NameBackfill, Owner: "order", Key: "client-123"}, "order:client-123:backfill", "order:{client-123}:backfill"},
		{event.Name{Kind: event.NameDeadLetters, Owner: "order", Key: "client-123"}, "order:client-123:dlq", "order:{client-123}:dlq"},
		{event.Name{Kind: event.NameIndex, Owner: "order"}, "order:__partitions__", "order:__partitions__"},
		{event.Name{Kind: event.NameDescriptor, Owner: "order"}, "order:__category__", "order:__category__"},
		{event.Name{Kind: event.NameHandlers, Owner: "order"}, "order:__handlers__", "order:__handlers__"},
		{event.Name{Kind: event.NameMissing, Owner: "order"}, "order:__missing__", "order:__missing__"},
		{event.Name{Kind: event.NameLease, Owner: "shipping", Key: "client-123"}, "shipping:client-123:__lease__", "shipping:{client-123}:__lease__"},
		{event.Name{Kind: event.NameGeneration, Owner: "shipping", Key: "client-123"}, "shipping:client-123:__generation__", "shipping:{client-123}:__generation__"},
		{event.Name{Kind: event.NameMissingRun, Owner: "billing", Key: "client-123"}, "billing:client-123:__missing__", "billing:{client-123}:__missing__"},
		{event.Name{Kind: event.NameBusy, Owner: "shipping"}, "shipping:__busy__", "shipping:__busy__"},
		{event.Name{Kind: event.NameHalted, Owner: "shipping"}, "shipping:__halted__", "shipping:__halted__"},
		{event.Name{Kind: event.NameWake, Owner: "shipping"}, "shipping:__wake__", "shipping:__wake__"},
		{event.Name{Kind: event.NameNewest, Owner: "order", Key: "client-123"}, "order:client-123:__newest__", "order:{client-123}:__newest__"},
		{event.Name{Kind: event.NameNewestBackfill, Owner: "order", Key: "client-123"}, "order:client-123:__newest_backfill__", "order:{client-123}:__newest_backfill__"},
		{event.Name{Kind: event.NameMembers, Owner: "1f0c"}, "1f0c:__members__", "1f0c:__members__"},
		{event.Name{Kind: event.NameBirth, Owner: "keyhold"}, "keyhold:__birth__", "keyhold:__birth__"},
		{event.Name{Kind: event.NameSubscriber, Owner: "shipping"}, "shipping:__subscriber__", "shipping:__subscriber__"},
		{event.Name{Kind: event.NameParts, Owner: "1f0c"}, "1f0c:__parts__", "1f0c:__parts__"},
	} {
		for names, want := range map[event.Names]string{
			{}:                                 c.plain,
			{Cluster: true}:                    c.cluster,
			{Namespace: "prod"}:                "prod::" + c.plain,
			{Namespace: "prod", Cluster: true}: "prod::" + c.cluster,
		} {
			if got, err := names.Build(c.name); err != nil || got != want {
				t.Errorf("Build(%v) = %q, %v, want %q", c.name, got, err, want)
			}
		}
	}
}

func TestEveryNameComesBackFromItsText(t *testing.T) {
	t.Parallel()
	owners := []string{"order", "order.commands", "dlq", "backfill", "prod", "é", strings.Repeat("o", event.MaxKey)}
	keys := []string{"client-123", "0", " ", "__", "a__", "order", "prod", "Zoë", "lease", strings.Repeat("k", event.MaxKey)}
	kinds := 0
	for label, names := range layouts {
		seen := map[string]event.Name{}
		for kind := event.NameKind(1); !strings.HasPrefix(kind.String(), "name kind"); kind++ {
			kinds++
			for _, owner := range owners {
				for _, key := range append(keys, "") {
					name := event.Name{Kind: kind, Owner: owner, Key: key}
					text, err := names.Build(name)
					if err != nil {
						if (key == "") == keyed(kind) {
							continue // this kind has a key, or has none
						}
						t.Fatalf("%s: Build(%v): %v", label, name, err)
					}
					if other, ok := seen[text]; ok {
						t.Fatalf("%s: %v and %v are both written %q", label, name, other, text)
					}
					seen[text] = name
					got, err := names.Parse(text)
					if err != nil {
						t.Fatalf("%s: Parse(%q): %v", label, text, err)
					}
					if diff := cmp.Diff(name, got); diff != "" {
						t.Fatalf("%s: Parse(%q) (-built +parsed):\n%s", label, text, diff)
					}
				}
			}
		}
	}
	if want := 19 * len(layouts); kinds != want {
		t.Errorf("tried %d kinds of names, want %d", kinds, want)
	}
}

func keyed(kind event.NameKind) bool {
	switch kind {
	case event.NamePartition, event.NameBackfill, event.NameDeadLetters, event.NameLease, event.NameGeneration, event.NameMissingRun,
		event.NameNewest, event.NameNewestBackfill:
		return true
	}
	return false
}

func TestBuildRefusesWhatParseCouldNotRead(t *testing.T) {
	t.Parallel()
	for bad := range badParts {
		for label, names := range layouts {
			if text, err := names.Build(event.Name{Kind: event.NamePartition, Owner: "order", Key: bad}); !errors.Is(err, event.ErrBadKey) {
				t.Errorf("%s: key %q: got %q, %v, want ErrBadKey", label, bad, text, err)
			}
			if text, err := names.Build(event.Name{Kind: event.NameBusy, Owner: bad}); !errors.Is(err, event.ErrBadName) {
				t.Errorf("%s: owner %q: got %q, %v, want ErrBadName", label, bad, text, err)
			}
		}
	}
	for _, name := range []event.Name{
		{},
		{Kind: 200, Owner: "order", Key: "k"},
		{Kind: event.NamePartition, Owner: "order"},
		{Kind: event.NamePartition, Owner: "order", Key: "dlq"},
		{Kind: event.NamePartition, Owner: "order", Key: "backfill"},
		{Kind: event.NameIndex, Owner: "order", Key: "k"},
	} {
		if text, err := (event.Names{}).Build(name); err == nil {
			t.Errorf("Build(%v) = %q, want an error", name, text)
		}
	}
}

func TestParseRefusesWhatBuildCannotMake(t *testing.T) {
	t.Parallel()
	cases := map[string][]string{
		"plain": {
			"", "order", ":", "::", "order:", ":client", "order::client", "order:client:", "order:client:more",
			"order:client:backfill:dlq", "order:client:__lease__:x", "order:client:late",
			"order:dlq", "order:backfill", "order:__nothing__", "order:__lease__", "order:client:__busy__",
			"order:{client}", "order:{client}:dlq", "__order__:client", "prod::order:client", "order:\xff", "order:a\nb",
			"order:client:__partitions__", "order:" + strings.Repeat("k", 256),
		},
		"cluster": {
			"order:client", "order:{client", "order:client}", "order:{}", "order:{{client}}", "order:{client}x", "order:x{client}",
			"{order}:client", "order:{client}:late", "order:{dlq}", "order:{__busy__}", "order:{a:b}", "order:{__partitions__}",
		},
		"namespace":  {"order:client", "prod:order:client", "prod::", "prod::order", "prod::prod::order:client", "Prod::order:client", "other::order:client"},
		"own suffix": {"order:client:backfill", "order:late"},
	}
	for label, texts := range cases {
		for _, text := range texts {
			name, err := layouts[label].Parse(text)
			if !errors.Is(err, event.ErrBadName) && !errors.Is(err, event.ErrBadKey) {
				t.Errorf("%s: Parse(%q) = %v, %v, want ErrBadName or ErrBadKey", label, text, name, err)
			}
		}
	}
}

func TestNamespacesNeverMeet(t *testing.T) {
	t.Parallel()
	// Without the second colon, the runs that handler prod asks for under key order, and the requests to category order in
	// namespace prod, would be one stream.
	run, err := event.Names{}.Build(event.Name{Kind: event.NameMissingRun, Owner: "prod", Key: "order"})
	if err != nil {
		t.Fatal(err)
	}
	asks, err := event.Names{Namespace: "prod"}.Build(event.Name{Kind: event.NameMissing, Owner: "order"})
	if err != nil {
		t.Fatal(err)
	}
	if run == asks {
		t.Errorf("both are written %q", run)
	}
	if got, err := (event.Names{}).Parse(asks); err == nil {
		t.Errorf("without a namespace %q is read as %v", asks, got)
	}
	if got, err := (event.Names{Namespace: "prod"}).Parse(run); err == nil {
		t.Errorf("in namespace prod %q is read as %v", run, got)
	}
}

func TestNamesValidateTheirSettings(t *testing.T) {
	t.Parallel()
	for label, names := range layouts {
		if err := names.Validate(); err != nil {
			t.Errorf("%s: %v", label, err)
		}
	}
	for _, names := range []event.Names{
		{Namespace: "a:b"}, {Namespace: "a:"}, {Namespace: "{a}"}, {Namespace: "__a__"}, {Namespace: "a\n"},
		{Keys: event.KeyRules{BackfillSuffix: "dlq"}},
		{Keys: event.KeyRules{BackfillSuffix: "__lease__"}},
	} {
		if err := names.Validate(); !errors.Is(err, event.ErrBadName) {
			t.Errorf("%+v: got %v, want ErrBadName", names, err)
		}
	}
}

func TestLaneAndItsStreamNameEachOther(t *testing.T) {
	t.Parallel()
	for _, lane := range []event.Lane{event.Primary, event.Backfill} {
		ref := event.LaneRef{Category: "order", Key: "client-123", Lane: lane}
		if got, ok := event.LaneName(ref).Lane(); !ok || got != ref {
			t.Errorf("lane %v comes back as %v, %v", ref, got, ok)
		}
	}
	if ref, ok := (event.Name{Kind: event.NameIndex, Owner: "order"}).Lane(); ok {
		t.Errorf("an index is said to be lane %v", ref)
	}
}

func TestHolderComesBackFromItsText(t *testing.T) {
	t.Parallel()
	for _, h := range []event.Holder{{Owner: "o", Generation: 1}, {Owner: event.NewID(), Generation: 1<<64 - 1}} {
		if got, err := event.ParseHolder(h.String()); err != nil || got != h {
			t.Errorf("ParseHolder(%q) = %v, %v", h, got, err)
		}
	}
	for _, text := range []string{"", ":", "o", "o:", ":1", "o:0", "o:01", "o:+1", "o:-1", "o:1 ", "o:1:1", "o:x", "__o__:1", "o\n:1", "o:18446744073709551616"} {
		if h, err := event.ParseHolder(text); !errors.Is(err, event.ErrBadName) {
			t.Errorf("ParseHolder(%q) = %v, %v, want ErrBadName", text, h, err)
		}
	}
}

// FuzzNames holds that Parse never panics, reads only what Build writes, and that no text is a name in two namespaces.
func FuzzNames(f *testing.F) {
	for label, names := range layouts {
		for kind := event.NamePartition; kind <= event.NameBirth; kind++ {
			name := event.Name{Kind: kind, Owner: "order"}
			if keyed(kind) {
				name.Key = "client-123"
			}
			text, err := names.Build(name)
			if err != nil {
				f.Fatalf("%s: Build(%v): %v", label, name, err)
			}
			f.Add(text)
		}
	}
	for bad := range badParts {
		f.Add(bad)
		f.Add("order:" + bad)
		f.Add("order:{" + bad + "}:dlq")
	}
	f.Fuzz(func(t *testing.T, text string) {
		namespaces := map[string]bool{}
		for label, names := range layouts {
			name, err := names.Parse(text)
			if err != nil {
				continue
			}
			if back, err := names.Build(name); err != nil || back != text {
				t.Errorf("%s: Parse(%q) = %v, but Build makes %q, %v of it", label, text, name, back, err)
			}
			namespaces[names.Namespace] = true
		}
		if len(namespaces) > 1 {
			t.Errorf("%q is a name in %v", text, namespaces)
		}
		if h, err := event.ParseHolder(text); err == nil && h.String() != text {
			t.Errorf("ParseHolder(%q) = %v", text, h)
		}
	})
}

func ExampleNames() {
	names := event.Names{Namespace: "prod", Cluster: true}
	text, err := names.Build(event.Name{Kind: event.NameLease, Owner: "shipping", Key: "client-123"})
	fmt.Println(text, err)
	name, err := names.Parse(text)
	fmt.Println(name, err)
	// Output:
	// prod::shipping:{client-123}:__lease__ <nil>
	// lease of "shipping", key "client-123" <nil>
}
