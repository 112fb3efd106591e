package keyhold

import (
	"errors"
	"fmt"
	"time"

	"github.com/keyhold/keyhold/transport"
)

// declareEvery is how often a broker is told what this application produces and reads. One that forgot it tells; another application that has claimed meanwhile what it forgot, or
// that goes on producing what this one has claimed, shows in the answer.
const declareEvery = time.Minute

// refused takes note of an answer to what was declared. That it does not agree any more is no fault that passes by itself: another application, with another store, produces the same
// category, or has a handler of the same name.
func (c *shared) refused(err error) {
	if err != nil && !errors.Is(err, transport.ErrDeclared) {
		return // nothing is known
	}
	was := c.contrary.Load()
	if err == nil {
		c.contrary.Store(nil)
		if was != nil {
			c.r.app.cfg.Logger.Info("what this application declares agrees with what the broker has again")
		}
		return
	}
	c.contrary.Store(&err)
	if unsaid, now := c.once.due("declarations"); now {
		c.r.app.cfg.Logger.Error("another application on this broker contradicts what this one declares, and both run: what they publish is mixed until a person decides which of them it is to be",
			"error", err, "unsaid", unsaid)
	}
}

// agrees is what does not agree, as an error.
func (c *shared) agrees() error {
	if err := c.contrary.Load(); err != nil {
		return fmt.Errorf("another application on this broker contradicts this one: %w", *err)
	}
	return nil
}
