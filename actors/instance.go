package actors

import (
	"fmt"
	"reflect"
)

func (h Handler[B]) compile() *program {
	p := &program{desc: h.Describe(), timers: h.OnTimer != nil, modes: modesOf(h.Modes), uses: map[reflect.Type]Use{}}
	cases := newCases(h.On, h.Modes, func(c Case[B]) reflect.Type { return c.in })
	for t := range cases.base {
		p.uses[t] = UseEvent
	}
	p.newInstance = func() instance { return &handlerInstance[B]{of: &h, cases: cases} }
	return p
}

// handlerInstance is one B.
type handlerInstance[B any] struct {
	of    *Handler[B]
	cases *cases[Case[B]]
	b     B
}

func (i *handlerInstance[B]) construct(key string) { i.b = i.of.New(key) }

func (i *handlerInstance[B]) activates() bool { return i.of.OnActivate != nil }

func (i *handlerInstance[B]) activate(c Context) error { return i.of.OnActivate(i.b, c) }

func (i *handlerInstance[B]) handle(c Context, mode string, e any) error {
	found, ok := i.cases.find(mode, structType(e))
	if !ok {
		return Poison(fmt.Errorf("handler %q has no case for %s: add On(func(b, ctx, e %[2]s) error)", i.of.Name, structType(e)))
	}
	return found.run(i.b, c, e)
}

func (i *handlerInstance[B]) timer(c Context, name string) error { return i.of.OnTimer(i.b, c, name) }

func (i *handlerInstance[B]) passivate() {
	if i.of.OnPassivate != nil {
		i.of.OnPassivate(i.b)
	}
}

// cases finds the case for a type: in the mode, else in the base.
type cases[C any] struct {
	base  map[reflect.Type]C
	modes map[string]map[reflect.Type]C
}

func newCases[C any, L ~[]C](base L, modes map[string]L, key func(C) reflect.Type) *cases[C] {
	index := func(list L) map[reflect.Type]C {
		m := make(map[reflect.Type]C, len(list))
		for _, c := range list {
			m[key(c)] = c
		}
		return m
	}
	c := &cases[C]{base: index(base), modes: make(map[string]map[reflect.Type]C, len(modes))}
	for name, list := range modes {
		c.modes[name] = index(list)
	}
	return c
}

func (c *cases[C]) find(mode string, t reflect.Type) (C, bool) {
	if mode != "" {
		if found, ok := c.modes[mode][t]; ok {
			return found, true
		}
	}
	found, ok := c.base[t]
	return found, ok
}

func modesOf[V any](modes map[string]V) map[string]bool {
	m := make(map[string]bool, len(modes))
	for name := range modes {
		m[name] = true
	}
	return m
}

// valueOf gives what a case for E takes: codecs give pointers to structs, behaviors emit structs, and protobuf messages are pointers
// everywhere.
func valueOf[E any](v any) E {
	if e, ok := v.(E); ok {
		return e
	}
	return *v.(*E)
}
