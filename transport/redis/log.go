package redis

import (
	"context"
	"fmt"
	"log/slog"

	goredis "github.com/redis/go-redis/v9"
)

// The client library has one log for all that use it, which goes to standard error. What it tells there comes as an error of a call too, which is told by whoever made the
// call; so for the library the level is debug, in the process's own log. It is set before any main function runs: a program that sets another one has that.
func init() { goredis.SetLogger(clientLog{}) }

type clientLog struct{}

func (clientLog) Printf(ctx context.Context, format string, args ...any) {
	if log := slog.Default(); log.Enabled(ctx, slog.LevelDebug) {
		log.DebugContext(ctx, "redis client", "says", fmt.Sprintf(format, args...))
	}
}
