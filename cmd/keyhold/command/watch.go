package command

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// watching is whether a view is shown again and again.
type watching struct {
	on    bool
	every time.Duration
}

func (w *watching) define(flags *pflag.FlagSet) {
	flags.BoolVar(&w.on, "watch", false, "go on showing it, until interrupted")
	flags.DurationVar(&w.every, "every", time.Second, "how often --watch looks")
}

// watch shows a view, once or again and again until ctx is done. A terminal is redrawn in place, and only when the picture has
// changed; anywhere else a view is appended when what it tells has changed, which the time that has gone by is not.
func (r *run) watch(ctx context.Context, w watching, look func(context.Context) (view, error)) error {
	if !w.on && r.command.Flags().Changed("every") {
		return misused("Add --watch, or leave --every out.", "%s: --every goes with --watch", r.command.CommandPath())
	}
	if !w.on {
		v, err := look(ctx)
		if err != nil {
			return err
		}
		return r.show(v)
	}
	return r.repeat(ctx, w.every, func(ctx context.Context) (view, bool, error) {
		v, err := look(ctx)
		return v, false, err
	})
}

// repeat is watch for a view that comes to an end of its own.
func (r *run) repeat(ctx context.Context, every time.Duration, look func(context.Context) (v view, over bool, err error)) error {
	if every <= 0 {
		return misused("Give a duration such as --every 5s.", "%s: --every is %v", r.command.CommandPath(), every)
	}
	ticks, stop := r.env.tick(every)
	defer stop()
	shown := r.showing()
	defer shown.end()
	for {
		v, over, err := look(ctx)
		if ctx.Err() != nil {
			return nil // that is how a watch ends
		}
		if err != nil {
			return err
		}
		if err := shown.update(v); err != nil || over {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
	}
}

// showing is what a watch has shown last.
type showing struct {
	*run
	last []byte
	live bool // redrawn in place
}

func (r *run) showing() *showing {
	return &showing{run: r, live: r.screen.is && r.setting.output != asJSON}
}

func (s *showing) update(v view) error {
	key, err := s.key(v)
	if err != nil || bytes.Equal(key, s.last) {
		return err
	}
	first := s.last == nil
	s.last = key
	switch {
	case s.live:
		return s.redraw(key, first)
	case s.setting.output == asJSON:
		line, err := document(v, "")
		if err != nil {
			return err
		}
		_, err = s.out.Write(line)
		return err
	}
	text, err := s.render(v)
	if err != nil {
		return err
	}
	between := "\n"
	if first {
		between = ""
	}
	_, err = fmt.Fprintf(s.out, "%s%s\n%s", between, s.env.now().UTC().Format(instant), text)
	return err
}

// timeless is a view that tells how long something has lasted, in words that change by themselves: timeless leaves them out.
type timeless interface{ timeless() any }

// key is what is compared to see whether there is anything new.
func (s *showing) key(v view) ([]byte, error) {
	if s.live {
		return s.render(v)
	}
	if t, ok := v.(timeless); ok {
		return document(t.timeless(), "")
	}
	return document(v, "")
}

const (
	home       = "\x1b[H"
	clearLine  = "\x1b[K"
	clearRest  = "\x1b[J"
	clearAll   = "\x1b[2J"
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
)

// redraw writes each line over what was there, so that nothing flickers. Lines that the terminal has no room for would scroll what
// is above away: they are left out, and that is said.
func (s *showing) redraw(text []byte, first bool) error {
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if room := s.screen.height - 1; room > 1 && len(lines) > room {
		more := len(lines) - room + 1
		lines = append(lines[:room-1], s.colours.dye(faint, fmt.Sprintf("… and %s", amount(more, "more line"))))
	}
	begin := home
	if first {
		begin = hideCursor + home + clearAll
	}
	_, err := s.out.Write([]byte(begin + strings.Join(lines, clearLine+"\n") + clearLine + "\n" + clearRest))
	return err
}

func (s *showing) end() {
	if s.live && s.last != nil {
		_, _ = s.out.Write([]byte(showCursor)) // the watch is over whether or not this arrives
	}
}
