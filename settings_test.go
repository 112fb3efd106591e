package keyhold

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/eventstore"
)

func TestSettingsThatOthersHaveOtherwiseAreFound(t *testing.T) {
	t.Parallel()
	says := func(node string, settings map[string]string) eventstore.Owner {
		text, err := admin.About{ID: node, Settings: settings}.Text()
		if err != nil {
			t.Fatal(err)
		}
		return eventstore.Owner{Node: node, About: text}
	}
	ours := map[string]string{"TTL": "15s", "MaxAhead": "10000"}
	var got []string
	for _, u := range unlike(ours, []eventstore.Owner{
		says("ours", ours), says("older", nil), {Node: "begins"}, {Node: "strange", About: "what another program says"}, says("newer", map[string]string{"TTL": "15s", "Unheard": "of"}),
		says("a", map[string]string{"TTL": "5s", "MaxAhead": "1"}), says("b", map[string]string{"TTL": "5s", "MaxAhead": "2"}),
	}) {
		got = append(got, fmt.Sprintf("%s %s at %s, others %d", u.Name, u.Value, u.Owners[0].Node, len(u.Owners)-1))
	}
	want := []string{"MaxAhead 1 at a, others 0", "MaxAhead 2 at b, others 0", "TTL 5s at a, others 1"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
