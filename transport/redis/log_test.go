package redis

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
)

// It is not parallel: the log of the process is one.
func TestTheClientLibraryLogsToTheProcessesOwnLogAtLevelDebug(t *testing.T) {
	before, flags, to := slog.Default(), log.Flags(), log.Writer()
	defer func() { // SetDefault has taken over the package log, too
		slog.SetDefault(before)
		log.SetFlags(flags)
		log.SetOutput(to)
	}()
	for level, want := range map[slog.Level]string{
		slog.LevelDebug: `level=DEBUG msg="redis client" says="sentinel: `,
		slog.LevelInfo:  "",
	} {
		var out bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})))
		client := goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: "none", SentinelAddrs: []string{"127.0.0.1:1"}, MaxRetries: -1})
		if err := client.Ping(context.Background()).Err(); err == nil {
			t.Fatal("nobody was there, and answered")
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if got := out.String(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("at level %s it says %q", level, got)
		}
	}
}
