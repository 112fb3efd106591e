package redis_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keyhold/keyhold/internal/redisserver"
	"github.com/keyhold/keyhold/transport"
)

// What a look costs does not grow with every key: 2,000 of them are looked at in 8 commands.
func TestALookAtManyQuietStreamsIsAFewCommands(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{})
	tr := w.connected(t)
	at := make([]transport.SourceAt, 2000)
	for i := range at {
		at[i].Key = fmt.Sprint("k-", i)
		at[i].Entry = w.do(t, "XADD", w.prefix()+"crm:"+at[i].Key, "*", "type", "x").(string)
	}
	w.do(t, "CONFIG", "RESETSTAT")
	news, err := tr.News(t.Context(), "crm", at)
	if err != nil {
		t.Fatal(err)
	}
	for i := range news {
		if news[i] {
			t.Fatalf("stream %d has news", i)
		}
	}
	stats, err := w.server.Info(t.Context(), "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	if got := stats["cmdstat_xread"]; !strings.HasPrefix(got, "calls=8,") {
		t.Errorf("xread: %s", got)
	}
	for name, calls := range stats {
		if name != "cmdstat_xread" && name != "cmdstat_config" && name != "cmdstat_config|resetstat" && name != "cmdstat_ping" && strings.HasPrefix(name, "cmdstat_x") {
			t.Errorf("also %s: %s", name, calls)
		}
	}
}

// An account that was made for what every application needs may not poll, and is told what that takes.
func TestAnAccountThatMayNotPollIsToldWhatItTakes(t *testing.T) {
	t.Parallel()
	w := newScene(t, redisserver.Options{ACL: []string{line("")}})
	w.cfg.Username, w.cfg.Password = "app", "secret"
	tr := w.connected(t)
	_, err := tr.FindSources(t.Context(), "crm", "")
	if err == nil || !strings.Contains(err.Error(), "+scan and +xread") {
		t.Errorf("find sources: %v", err)
	}
	if _, err = tr.News(t.Context(), "crm", []transport.SourceAt{{Key: "a"}}); err == nil || !strings.Contains(err.Error(), "+scan and +xread") {
		t.Errorf("news: %v", err)
	}
}
