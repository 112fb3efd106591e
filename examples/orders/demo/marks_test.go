package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keyhold/keyhold/event"
)

func TestMarksOfSeveralLivesComeBackInOrder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "marks")
	var want []mark
	for life := 1; life <= 3; life++ {
		m, err := openMarker(path, incarnation{4 - life, life})
		if err != nil {
			t.Fatal(err)
		}
		for _, enter := range []bool{true, false} {
			k := mark{MS: int64(life), Enter: enter, Generation: 5, Client: "client-01", Order: "o-1", Event: "e-1", Seq: 7, Attempt: life}
			if err := m.put(k); err != nil {
				t.Fatal(err)
			}
			k.Process, k.Life = 4-life, life
			want = append(want, k)
		}
		if err := m.close(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readMarksFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMarksWrittenAtOnceStayWhole(t *testing.T) {
	t.Parallel()
	const writers, each = 8, 200
	path := filepath.Join(t.TempDir(), "marks")
	m, err := openMarker(path, incarnation{1, 1})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				k := mark{Enter: true, Generation: 1, Client: fmt.Sprint(w), Order: strings.Repeat("o", i), Event: fmt.Sprint(i), Seq: uint64(i + 1)}
				if err := m.put(k); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	marks, err := readMarksFile(path)
	if err != nil || len(marks) != writers*each {
		t.Errorf("%d marks, want %d (%v)", len(marks), writers*each, err)
	}
}

func TestEvidenceThatCannotBeReadIsRefused(t *testing.T) {
	t.Parallel()
	const good = `{"process":1,"life":1,"generation":1,"enter":true,"client":"c","order":"o","event":"e","seq":1,"attempt":1}` + "\n"
	for name, text := range map[string]string{
		"a line cut off":   good + good[:20],
		"two lines in one": good[:20] + good,
		"no client":        good + `{"process":1,"life":1,"generation":1,"enter":true,"order":"o","event":"e","seq":1}`,
		"no life":          `{"process":1,"generation":1,"client":"c","event":"e","seq":1}`,
		"no sequence":      `{"process":1,"life":1,"generation":1,"client":"c","event":"e"}`,
		"no process":       `{"life":1,"generation":1,"client":"c","event":"e","seq":1}`,
		"no generation":    `{"process":1,"life":1,"client":"c","event":"e","seq":1}`,
		"killed, but who":  `{"life":1,"killed":true}`,
		"an empty line":    good + "\n" + good,
	} {
		if marks, err := readMarks(strings.NewReader(text)); err == nil {
			t.Errorf("%s: read %d marks", name, len(marks))
		}
	}
}

func FuzzReadMarks(f *testing.F) {
	f.Add([]byte(`{"process":1,"life":1,"generation":1,"enter":true,"client":"c","order":"o","event":"e","seq":1,"attempt":1}` + "\n"))
	f.Add([]byte(`{"process":2,"life":1,"ms":7,"killed":true}` + "\n"))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		marks, err := readMarks(bytes.NewReader(text))
		if err != nil {
			return
		}
		follow(marks)
		measure(evidence{Marks: marks}, event.Unit{})
		var again []byte
		for _, m := range marks {
			again = append(again, line(m)...)
		}
		reread, err := readMarks(bytes.NewReader(again))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(marks, reread); diff != "" {
			t.Error(diff)
		}
	})
}
