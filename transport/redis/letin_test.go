package redis

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
)

// reply is an error that a server replied with.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestWhatToDoAboutAServerThatLetsNobodyIn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  Config
		err  error
		want string
	}{
		{Config{Master: "orders"}, fmt.Errorf("all sentinels: %w", goredis.Nil), "see Config.Master"},
		{Config{}, goredis.Nil, ""},
		{Config{}, reply("LOADING Redis is loading the dataset in memory"), "try again"},
		{Config{}, reply("ERR max number of clients reached"), "maxclients"},
		{Config{}, reply("ERR something else"), ""},
		{Config{}, errors.New("anything else"), ""},
	} {
		if got := c.cfg.whatToDo(c.err); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%v: %q, want something about %q", c.err, got, c.want)
		}
	}
}
