//go:build !linux

package netns

import "fmt"

// space is a network namespace, of which this system has none.
type space struct{}

func newSpace() (*space, error) { return nil, fmt.Errorf("%w: they are a thing of Linux", ErrRefused) }

func (*space) path() string                 { return "" }
func (*space) within(func() error) error    { return ErrRefused }
func (*space) have(string, ...string) error { return ErrRefused }
func (*space) close() error                 { return nil }
