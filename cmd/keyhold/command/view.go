package command

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/keyhold/keyhold/admin"
)

// view is what a command shows: as the JSON document that it is, or drawn.
type view interface{ draw(p *page) }

// show writes a view in the output that was asked for.
func (r *run) show(v view) error {
	text, err := r.render(v)
	if err != nil {
		return err
	}
	_, err = r.out.Write(text)
	return err
}

func (r *run) render(v view) ([]byte, error) {
	if r.setting.output == asJSON {
		return document(v, "  ")
	}
	return r.drawn(v)
}

// drawn is a view for a person, whatever output was asked for.
func (r *run) drawn(v view) ([]byte, error) {
	p := &page{typed: r.typed(), now: r.env.now(), wide: r.setting.output == asWide, width: r.screen.width, colours: r.colours}
	v.draw(p)
	return p.text.Bytes(), nil
}

// document writes JSON. encoding/json escapes control characters below U+0020; the others that a terminal may obey are escaped here.
func document(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return escapeJSON(b.Bytes()), nil
}

func escapeJSON(text []byte) []byte {
	risky := func(r rune) bool { return r >= 0x7f && !printable(r) && r != utf8.RuneError }
	if bytes.IndexFunc(text, risky) < 0 {
		return text
	}
	var out []byte
	for _, r := range string(text) { // of valid UTF-8, which encoding/json sees to
		switch {
		case !risky(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			r -= 0x10000
			out = append(out, `\u`+hex4(0xd800+r>>10)+`\u`+hex4(0xdc00+r&0x3ff)...)
		default:
			out = append(out, `\u`+hex4(r)...)
		}
	}
	return out
}

func hex4(r rune) string {
	s := strconv.FormatInt(int64(r), 16)
	return strings.Repeat("0", 4-len(s)) + s
}

// page is what views are drawn on.
type page struct {
	typed   string // what command lines begin with that are offered
	now     time.Time
	wide    bool
	width   int // of the terminal; 0 = there is none
	colours palette
	text    bytes.Buffer
}

// line writes one line, which must be clean.
func (p *page) line(text string) { p.text.WriteString(text + "\n") }

func (p *page) blank() { p.line("") }

// advise is a command line that a person may copy.
func (p *page) advise(which string, args ...string) string {
	return admin.CommandLine(p.typed, which, nil, args...)
}

// hint writes what may be done next.
func (p *page) hint(text string) { p.line(p.colours.dye(faint, text)) }

func (p *page) table(t *table) { _ = t.write(&p.text, p.colours, p.wide, p.width) }

// fields are lines of a name and a value each, one below the other.
type fields []field

type field struct {
	name  string
	value cell
}

func (f *fields) add(name, value string) {
	if value != "" {
		*f = append(*f, field{name, plain(value)})
	}
}

func (f *fields) addPainted(name string, value cell) { *f = append(*f, field{name, value}) }

func (p *page) fields(f fields) {
	widest := 0
	for _, one := range f {
		widest = max(widest, cells(one.name))
	}
	for _, one := range f {
		pad := strings.Repeat(" ", widest-cells(one.name)+2)
		p.line(p.colours.dye(faint, one.name) + pad + p.colours.dye(one.value.paint, one.value.text))
	}
}

// ago tells how long it is since t, "" for the zero time.
func (p *page) ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return span(p.now.Sub(t))
}

// when tells t both ways.
func (p *page) when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if d := t.Sub(p.now); d > 0 {
		return "in " + span(d) + " (" + t.UTC().Format(instant) + ")"
	}
	return p.ago(t) + " ago (" + t.UTC().Format(instant) + ")"
}
