package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// mark says that an event went into shipping, or came out of it.
type mark struct {
	Life    int    `json:"life"`  // of the process: 1 before the kill, 2 after it
	Enter   bool   `json:"enter"` // else it left
	Client  string `json:"client"`
	Order   string `json:"order"`
	Event   string `json:"event"` // id
	Seq     uint64 `json:"seq"`   // of the event, among its client's
	Attempt int    `json:"attempt"`
}

// marker writes marks to a file that all lives of the process share. It is no part of any transaction, so it also tells of
// work that was rolled back, or killed.
type marker struct {
	file *os.File
	life int
}

func openMarker(path string, life int) (*marker, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	return &marker{file: file, life: life}, nil
}

// put appends a mark with a single write, so that a process dies before it or after it. It may be called concurrently.
func (m *marker) put(k mark) error {
	k.Life = m.life
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
		if k.Life < 1 || k.Client == "" || k.Event == "" || k.Seq == 0 {
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
