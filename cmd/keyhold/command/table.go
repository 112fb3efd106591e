package command

import (
	"io"
	"strings"
)

// column is one column of a table.
type column struct {
	title string
	right bool // numbers
	give  bool // it gives up width where there is too little
	wide  bool // only in -o wide
}

// cell is a value of a table with its colour.
type cell struct {
	text  string
	paint paint
}

// plain is a cell without a colour; what a store holds goes through it.
func plain(text string) cell { return cell{text: clean(text)} }

// table is rows under titles.
type table struct {
	columns []column
	rows    [][]cell
}

// narrowest is what a column that gives up width keeps of it.
const narrowest = 8

// loose is how wide a column that gives may be where no terminal says how much room there is.
const loose = 60

// write draws the table. Columns meant for -o wide are left out unless wide; without it, values are cut so that lines have at
// most width cells of a terminal (0 = not known: each value that gives is at most loose).
func (t *table) write(w io.Writer, colours palette, wide bool, width int) error {
	var shown []int
	for i, c := range t.columns {
		if wide || !c.wide {
			shown = append(shown, i)
		}
	}
	titles := make([]cell, len(t.columns))
	for i, c := range t.columns {
		titles[i] = cell{c.title, faint}
	}
	widths := t.widths(shown, wide, width)
	var out []byte
	for _, row := range append([][]cell{titles}, t.rows...) {
		for n, i := range shown {
			text := row[i].text
			if len(text) == 0 {
				text = "-"
			}
			text = cut(text, widths[n])
			pad := strings.Repeat(" ", max(widths[n]-cells(text), 0))
			if n > 0 {
				out = append(out, "  "...)
			}
			if t.columns[i].right {
				out = append(out, pad...)
			}
			out = append(out, colours.dye(row[i].paint, text)...)
			if !t.columns[i].right && n < len(shown)-1 {
				out = append(out, pad...)
			}
		}
		out = append(out, '\n')
	}
	_, err := w.Write(out)
	return err
}

// widths gives each column shown what its longest value needs; where that is too much for the line, the widest of those that give
// is made narrower until it fits.
func (t *table) widths(shown []int, wide bool, width int) []int {
	widths := make([]int, len(shown))
	total := 2 * (len(shown) - 1)
	for n, i := range shown {
		widths[n] = cells(t.columns[i].title)
		for _, row := range t.rows {
			widths[n] = max(widths[n], cells(row[i].text), 1)
		}
		if !wide && width == 0 && t.columns[i].give {
			widths[n] = min(widths[n], loose)
		}
		total += widths[n]
	}
	if wide || width == 0 {
		return widths
	}
	for total > width {
		widest := -1
		for n, i := range shown {
			if t.columns[i].give && widths[n] > narrowest && (widest < 0 || widths[n] > widths[widest]) {
				widest = n
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		total--
	}
	return widths
}
