package redis

import (
	"context"
	"fmt"
)

// number runs one command that answers with a number, where a key is.
func (s *servers) number(ctx context.Context, key string, args ...any) (int64, error) {
	c := &call{keys: []string{key}, args: args}
	if _, err := s.run(ctx, onWork, c); err != nil {
		return 0, err
	}
	n, ok := integer(c.reply)
	if !ok {
		return 0, fmt.Errorf("odd reply %v to %v", c.reply, args[0])
	}
	return n, nil
}
