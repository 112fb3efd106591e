package main

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/keyhold/keyhold/internal/lifecycle"
)

// fleet is the processes of the application that run, by their numbers. Methods may be called concurrently.
type fleet struct {
	mu struct {
		sync.Mutex
		all  []*process
		next int
	}
}

func (f *fleet) add(p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.all = append(f.mu.all, p)
	slices.SortFunc(f.mu.all, func(a, b *process) int { return a.number - b.number })
}

// any gives them in turn, as a load balancer does; nil when none runs.
func (f *fleet) any() *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range f.mu.all {
		p := f.mu.all[f.mu.next%len(f.mu.all)]
		f.mu.next++
		if p.runs() {
			return p
		}
	}
	return nil
}

func (f *fleet) running() []*process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.mu.all), func(p *process) bool { return !p.runs() })
}

// call has any of them do something.
func (f *fleet) call(ctx context.Context, c call) (answer, error) {
	p := f.any()
	if p == nil {
		return answer{}, errGone
	}
	return p.call(ctx, c)
}

// callAll has each of them do something.
func (f *fleet) callAll(ctx context.Context, c call) (err error) {
	for _, p := range f.running() {
		_, failed := p.call(ctx, c)
		err = errors.Join(err, failed)
	}
	return err
}

// kill ends one at once, and forgets it.
func (f *fleet) kill(p *process) error {
	f.mu.Lock()
	f.mu.all = slices.DeleteFunc(f.mu.all, func(other *process) bool { return other == p })
	f.mu.Unlock()
	return p.kill()
}

// end ends all that run, by stop or kill, at the same time.
func (f *fleet) end(ctx context.Context, by func(context.Context, *process) error) error {
	var ends lifecycle.Group
	if err := ends.Start(ctx); err != nil {
		return err
	}
	all := f.running()
	errs := make(chan error, len(all))
	for _, p := range all {
		ends.Go(func(context.Context) { errs <- by(ctx, p) })
	}
	var err error
	for range all {
		err = errors.Join(err, <-errs)
	}
	return errors.Join(err, ends.Stop(context.WithoutCancel(ctx)))
}
