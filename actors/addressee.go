package actors

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/keyhold/keyhold/event"
)

// addressee gives the program of the entity that a command or query is for. The error says why there is none, or why no entity could
// be given this.
func (r *Runtime) addressee(to Ref, command any) (*program, error) {
	p := r.programs[to.Kind]
	if p == nil || !p.entity() {
		return nil, fmt.Errorf("%w: %q (known: %s)", ErrUnknownEntity, to.Kind, r.entities())
	}
	if err := wellAddressed(r.cfg.Keys, to, command); err != nil {
		return nil, err
	}
	return p, nil
}

// wellAddressed says what is wrong with a command or query for an entity of a kind that nothing is known of.
func wellAddressed(keys event.KeyRules, to Ref, command any) error {
	v := reflect.ValueOf(command)
	switch {
	case command == nil:
		return errors.New("the command is nil")
	case v.Kind() == reflect.Struct:
		return fmt.Errorf("commands and queries are pointers: pass &%T{...}", command)
	case v.Kind() != reflect.Pointer:
		return fmt.Errorf("%T is no command: pass a pointer to a struct", command)
	case v.IsNil():
		return fmt.Errorf("the command is a nil %T", command)
	case to.ID == "":
		return fmt.Errorf("%w: the id is empty: name the %s that is meant", event.ErrBadKey, to.Kind)
	}
	if err := keys.Check(to.ID); err != nil {
		return fmt.Errorf("id: %w", err)
	}
	return nil
}

// entities lists the kinds that are registered, for messages.
func (r *Runtime) entities() string {
	var kinds []string
	for _, name := range slices.Sorted(maps.Keys(r.programs)) {
		if r.programs[name].entity() {
			kinds = append(kinds, strconv.Quote(name))
		}
	}
	if len(kinds) == 0 {
		return "none"
	}
	return strings.Join(kinds, ", ")
}
