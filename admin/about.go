package admin

import (
	"encoding/json"
	"time"

	"github.com/keyhold/keyhold/eventstore"
)

// About is what a node says of itself in the store, where people find it who look from outside. What grows and shrinks all the time is a few seconds old.
type About struct {
	ID       string    `json:"id"` // of the member; new at every start
	Address  string    `json:"address,omitempty"`
	Gossip   string    `json:"gossip,omitempty"`
	Version  string    `json:"version,omitempty"` // of its program
	Up       time.Time `json:"up,omitzero"`       // since when it is a member
	Units    int       `json:"units"`             // whose leases it holds
	Draining bool      `json:"draining,omitempty"`
	Apart    bool      `json:"apart,omitempty"`   // it ranks nowhere until its store and its broker answer it again
	Since    time.Time `json:"since,omitzero"`    // that it drains, or is apart
	Keys     int       `json:"keys,omitempty"`    // that open what it hears by gossip
	Seals    string    `json:"seals,omitempty"`   // fingerprint of the one that seals
	Notices  []string  `json:"notices,omitempty"` // what somebody should see to soon
	// Settings are those that all nodes of an application must have alike, by name; a program that does not know one does not name it.
	Settings map[string]string `json:"settings,omitempty"`
}

// State is what it does, in a word or two.
func (a *About) State() string {
	switch {
	case a.Draining:
		return "draining"
	case a.Apart:
		return "out of reach"
	}
	return "takes part"
}

// Text is the form in which it is in the store.
func (a About) Text() (string, error) {
	text, err := json.Marshal(a)
	if err == nil && len(text) > eventstore.MaxAbout {
		a.Notices, a.Version = nil, ""
		text, err = json.Marshal(a)
	}
	return string(text), err
}

// AboutOf reads that form; nil = it says nothing, or what another program says.
func AboutOf(text string) *About {
	var a About
	if text == "" || json.Unmarshal([]byte(text), &a) != nil || a.ID == "" {
		return nil
	}
	return &a
}
