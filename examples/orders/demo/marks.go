package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// mark says that an event went into shipping, or came out of it; or that a process was killed, and writes no more.
type mark struct {
	Process int   `json:"process"`         // its number
	Life    int   `json:"life"`            // of the process: 1 before the kill, 2 after it
	MS      int64 `json:"ms"`              // when, since 1970
	Killed  bool  `json:"killed,omitzero"` // at MS it was sent the signal, and was gone when this was written; what is below is not set

	Enter      bool   `json:"enter,omitzero"`      // else it left
	Generation uint64 `json:"generation,omitzero"` // of the client's owner: whoever is owner next has a higher one
	Client     string `json:"client,omitzero"`
	Order      string `json:"order,omitzero"`
	Event      string `json:"event,omitzero"` // id
	Seq        uint64 `json:"seq,omitzero"`   // of the event, among its client's
	Attempt    int    `json:"attempt,omitzero"`
}

// incarnation is a process from one start to its end.
type incarnation struct{ number, life int }

func (m mark) by() incarnation { return incarnation{m.Process, m.Life} }
func (m mark) Time() time.Time { return time.UnixMilli(m.MS) }

// marker writes marks to a file that all processes share, in all their lives. It is no part of any transaction, so it also tells of
// work that was rolled back, or killed.
type marker struct {
	file *os.File
	as   incarnation
}

func openMarker(path string, as incarnation) (*marker, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	return &marker{file, as}, nil
}

// put appends a mark with a single write, so that a process dies before it or after it. It may be called concurrently.
func (m *marker) put(k mark) error {
	k.Process, k.Life = m.as.number, m.as.life
	if k.MS == 0 {
		k.MS = time.Now().UnixMilli()
	}
	line, err := json.Marshal(k)
	if err != nil {
		return err
	}
	_, err = m.file.Write(append(line, '\n'))
	return err
}

func (m *marker) close() error { return m.file.Close() }

// readMarks reads marks in the order in which they were written. A line that is no mark is an error: evidence that cannot be
// read is none.
func readMarks(r io.Reader) ([]mark, error) {
	var marks []mark
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var k mark
		if err := json.Unmarshal(lines.Bytes(), &k); err != nil {
			return nil, fmt.Errorf("mark %d: %w", len(marks)+1, err)
		}
		if k.Life < 1 || k.Process < 1 || !k.Killed && (k.Generation == 0 || k.Client == "" || k.Event == "" || k.Seq == 0) {
			return nil, fmt.Errorf("mark %d: incomplete: %s", len(marks)+1, lines.Bytes())
		}
		marks = append(marks, k)
	}
	return marks, lines.Err()
}

func readMarksFile(path string) ([]mark, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readMarks(file)
}
