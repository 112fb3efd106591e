// Package figures is how the programs of this module tell what they measured: a table for people, JSON for everybody else.
package figures

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// Figure is one line of the table.
type Figure struct {
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Floor  float64 `json:"floor,omitempty"`  // what the same client and server do with nothing in between, in the same run
	Ratio  float64 `json:"ratio,omitempty"`  // of Value to Floor, the median over rounds
	Client float64 `json:"client,omitempty"` // processor time of this program for one, in microseconds, which others on the machine disturb less
	Server float64 `json:"server,omitempty"` // likewise of the server
	Reach  string  `json:"reach,omitempty"`  // what is aimed at
}

// Sheet is all figures of a run.
type Sheet []Figure

// Add adds a figure.
func (s *Sheet) Add(f Figure) { *s = append(*s, f) }

// Write writes the table, and the JSON where a file is named.
func (s Sheet) Write(to io.Writer, file string) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tmeasured\t\tfloor\tof the floor\tCPU us here\tCPU us server\tto reach\t")
	for _, f := range s {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", f.Name, number(f.Value), f.Unit, number(f.Floor), number(f.Ratio), number(f.Client), number(f.Server), f.Reach)
	}
	if err := w.Flush(); err != nil || file == "" {
		return err
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// number is short, and empty for what was not measured.
func number(v float64) string {
	switch {
	case v == 0:
		return ""
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Round is one measurement of a thing.
type Round struct {
	PerSecond      float64
	Client, Server float64 // processor time for one, in microseconds
}

// Timed makes a round of n things in a time.
func Timed(n int, took, client, server time.Duration) Round {
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(n) }
	return Round{PerSecond: float64(n) / took.Seconds(), Client: each(client), Server: each(server)}
}

// Compare gives the figure of rounds that were measured in turns with those of a floor.
func Compare(name, unit, reach string, rounds, floor []Round) Figure {
	ratios := make([]float64, len(rounds))
	for i := range rounds {
		ratios[i] = rounds[i].PerSecond / floor[i].PerSecond
	}
	return Figure{
		Name: name, Unit: unit, Reach: reach, Ratio: Median(ratios), Floor: of(floor, func(r Round) float64 { return r.PerSecond }),
		Value:  of(rounds, func(r Round) float64 { return r.PerSecond }),
		Client: of(rounds, func(r Round) float64 { return r.Client }), Server: of(rounds, func(r Round) float64 { return r.Server }),
	}
}

// Floor is the figure of the floor itself.
func Floor(name, unit string, floor []Round) Figure {
	return Figure{
		Name: name, Unit: unit, Value: of(floor, func(r Round) float64 { return r.PerSecond }),
		Client: of(floor, func(r Round) float64 { return r.Client }), Server: of(floor, func(r Round) float64 { return r.Server }),
	}
}

func of(rounds []Round, field func(Round) float64) float64 {
	all := make([]float64, len(rounds))
	for i, r := range rounds {
		all[i] = field(r)
	}
	return Median(all)
}

// Median of values; 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// Quantile gives, in milliseconds, what a share of times is below; 0 of none.
func Quantile(times []time.Duration, share float64) float64 {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	at := min(int(share*float64(len(sorted))), len(sorted)-1)
	return float64(sorted[at].Microseconds()) / 1000
}
