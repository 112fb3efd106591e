package intake

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/transport"
)

func at(entry string, added uint64) event.SourcePlace {
	return event.SourcePlace{Entry: entry, Added: added}
}

func found(last string, length, added uint64, more bool, ids ...string) *transport.SourceRead {
	r := &transport.SourceRead{Last: last, Length: length, Added: added, More: more}
	for _, id := range ids {
		r.Entries = append(r.Entries, transport.SourceEntry{ID: id})
	}
	return r
}

func TestDecide(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from  event.SourcePlace
		first bool
		read  *transport.SourceRead
		want  reading
	}{
		"there is no stream":                           {at("7-0", 3), false, found("", 0, 0, false), reading{to: at("7-0", 3)}},
		"nothing new":                                  {at("7-0", 3), false, found("7-0", 3, 3, false), reading{to: at("7-0", 3)}},
		"what comes next":                              {at("7-0", 3), false, found("9-0", 5, 5, false, "8-0", "9-0"), reading{to: at("9-0", 5)}},
		"a part of it":                                 {at("7-0", 3), false, found("9-0", 5, 5, true, "8-0"), reading{to: at("8-0", 4), more: true}},
		"what was taken in is trimmed":                 {at("7-0", 3), false, found("8-0", 1, 4, false, "8-0"), reading{to: at("8-0", 4)}},
		"what was not is, too":                         {at("7-0", 3), false, found("9-0", 1, 6, false, "9-0"), reading{to: at("9-0", 6), lost: 2}},
		"all of it is":                                 {at("7-0", 3), false, found("9-0", 0, 6, false), reading{to: at("7-0", 6), lost: 3}},
		"it is, and there is more":                     {at("7-0", 3), false, found("99-0", 50, 90, true, "60-0"), reading{to: at("60-0", 41), lost: 37, more: true}},
		"one in the middle was deleted":                {at("7-0", 3), false, found("9-0", 4, 5, false, "9-0"), reading{to: at("9-0", 5), lost: 1}},
		"one that was taken in was, and there is more": {at("7-0", 3), false, found("9-0", 4, 5, true, "8-0"), reading{to: at("8-0", 4), more: true}},
		"the first time":                               {at("", 0), true, found("9-0", 2, 90, false, "8-0", "9-0"), reading{to: at("9-0", 90)}},
		"the first time, a part":                       {at("", 0), true, found("9-0", 2, 90, true, "8-0"), reading{to: at("8-0", 89), more: true}},
		"the first time, and all is gone":              {at("", 0), true, found("9-0", 0, 90, false), reading{to: at("", 90)}},
		"ids went back":                                {at("7-0", 3), false, found("2-0", 2, 2, false), reading{to: at("7-0", 3), anew: true}},
		"ids went on, and the count back":              {at("7-0", 30), false, found("9-0", 2, 2, false, "8-0", "9-0"), reading{to: at("9-0", 30), anew: true}},
		"the count is as high as what was read":        {at("7-0", 3), false, found("9-0", 2, 3, false, "8-0", "9-0"), reading{to: at("9-0", 3), anew: true}},
		"the broker does not count":                    {at("7-0", 0), false, found("9-0", 2, 0, false, "9-0"), reading{to: at("9-0", 0)}},
		"it does not, the first time":                  {at("", 0), true, found("9-0", 2, 0, false, "9-0"), reading{to: at("9-0", 0)}},
		"it does not, and ids went back":               {at("7-0", 0), false, found("2-0", 2, 0, false), reading{to: at("7-0", 0), anew: true}},
		"it begins to count":                           {at("7-0", 0), false, found("9-0", 2, 20, false, "9-0"), reading{to: at("9-0", 20)}},
		"it begins to count, and there is more":        {at("7-0", 0), false, found("9-0", 2, 20, true, "8-0"), reading{to: at("8-0", 0), more: true}},
		"from the beginning of another":                {at("", 0), false, found("9-0", 2, 5, false, "8-0", "9-0"), reading{to: at("9-0", 5), lost: 3}},
	} {
		got := decide(c.from, c.first, c.read)
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(reading{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAnotherStreamIsReadFromItsBeginning(t *testing.T) {
	t.Parallel()
	const old, mid, young = "1764000000000-0", "1764000500000-0", "1764001000000-5"
	remembered := time.UnixMilli(1764000500000)
	for name, c := range map[string]struct {
		from, last string
		want       string
	}{
		"ids that are no times":                             {"7-0", "2-0", ""},
		"only the new ones are":                             {"7-0", young, ""},
		"only the old ones are":                             {young, "2-0", ""},
		"what is remembered":                                {young, "1764000999999-0", mid},
		"the old place was before what is remembered":       {old, young, old},
		"all that is left is older than what is remembered": {young, old, old},
	} {
		if got := beginning(at(c.from, 9), found(c.last, 1, 1, false), remembered); got != at(c.want, 0) {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
}
