package grpc

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/keyhold/keyhold/event"
	nodev1 "github.com/keyhold/keyhold/proto/keyhold/node/v1"
	"github.com/keyhold/keyhold/transport"
)

// peerCodes are by number on the wire; a number that is not here comes from a newer release.
var peerCodes = []transport.PeerCode{nodev1.Code_CODE_REJECTED: transport.PeerRejected, nodev1.Code_CODE_FAILED: transport.PeerFailed, nodev1.Code_CODE_POISON: transport.PeerPoison,
	nodev1.Code_CODE_RETRY: transport.PeerRetry, nodev1.Code_CODE_NOT_OWNER: transport.PeerNotOwner, nodev1.Code_CODE_UNAVAILABLE: transport.PeerUnavailable,
	nodev1.Code_CODE_MAILBOX_FULL: transport.PeerMailboxFull, nodev1.Code_CODE_STOPPING: transport.PeerStopping, nodev1.Code_CODE_UNKNOWN_KIND: transport.PeerUnknownKind,
	nodev1.Code_CODE_UNKNOWN_TYPE: transport.PeerUnknownType, nodev1.Code_CODE_UNKNOWN_COMMAND: transport.PeerUnknownCommand, nodev1.Code_CODE_TOO_LARGE: transport.PeerTooLarge,
	nodev1.Code_CODE_BAD: transport.PeerBad, nodev1.Code_CODE_CYCLE: transport.PeerCycle, nodev1.Code_CODE_ENDED: transport.PeerEnded, nodev1.Code_CODE_DENIED: transport.PeerDenied,
	nodev1.Code_CODE_BUSY: transport.PeerBusy, nodev1.Code_CODE_AGAIN: transport.PeerAgain}

var encodings = []event.Encoding{nodev1.Encoding_ENCODING_UNSPECIFIED: "", nodev1.Encoding_ENCODING_JSON: event.JSON, nodev1.Encoding_ENCODING_PROTO: event.Proto}

func toEncoding(e event.Encoding) nodev1.Encoding {
	return nodev1.Encoding(max(slices.Index(encodings, e), 0))
}

func fromEncoding(e nodev1.Encoding) (event.Encoding, error) {
	if e < 0 || int(e) >= len(encodings) {
		return "", fmt.Errorf("it is encoded in a way (%d) that this program does not know", e)
	}
	return encodings[e], nil
}

func toUnits(units []event.Unit) []*nodev1.Unit {
	var out []*nodev1.Unit
	for _, u := range units {
		out = append(out, &nodev1.Unit{Name: u.Name, Key: u.Key})
	}
	return out
}

func fromUnits(units []*nodev1.Unit) []event.Unit {
	var out []event.Unit
	for _, u := range units {
		out = append(out, event.Unit{Name: u.GetName(), Key: u.GetKey()})
	}
	return out
}

func toQuestion(q *transport.PeerAsk) *nodev1.Question {
	return &nodev1.Question{To: &nodev1.Unit{Name: q.To.Name, Key: q.To.Key}, Type: q.Type, Version: int32(q.Version), Encoding: toEncoding(q.Encoding), Data: q.Data,
		CommandId: q.CommandID, CorrelationId: q.CorrelationID, CausationId: q.CausationID, Tenant: q.Tenant, Traceparent: q.Trace.Parent, Tracestate: q.Trace.State,
		Waiting: toUnits(q.Waiting), Decide: q.Decide, Id: toAskID(q.ID)}
}

func toAskID(id transport.PeerAskID) *nodev1.AskId {
	if id == (transport.PeerAskID{}) {
		return nil
	}
	return &nodev1.AskId{Node: id.Node, Number: id.Number}
}

func fromAskID(id *nodev1.AskId) transport.PeerAskID {
	return transport.PeerAskID{Node: id.GetNode(), Number: id.GetNumber()}
}

func toProbes(probes []transport.PeerProbe) []*nodev1.Probe {
	var out []*nodev1.Probe
	for _, p := range probes {
		to := &nodev1.Probe{Origin: toAskID(p.Origin), At: int32(min(p.At, math.MaxInt32)), Again: p.Again}
		for _, step := range p.Way {
			to.Way = append(to.Way, &nodev1.Step{Ask: toAskID(step.Ask), Made: step.Made})
		}
		out = append(out, to)
	}
	return out
}

// batches cuts probes into as many questions as it takes for each to be of so many bytes at most, and counts those that are longer by themselves.
func batches(probes []*nodev1.Probe, most int) (all []*nodev1.ProbeRequest, longer int) {
	size := 0
	for _, p := range probes {
		n := proto.Size(&nodev1.ProbeRequest{Probes: []*nodev1.Probe{p}})
		switch {
		case n > most:
			longer++
			continue
		case len(all) == 0 || size+n > most:
			all, size = append(all, &nodev1.ProbeRequest{}), 0
		}
		last := all[len(all)-1]
		last.Probes, size = append(last.Probes, p), size+n
	}
	return all, longer
}

func fromProbes(probes []*nodev1.Probe) []transport.PeerProbe {
	var out []transport.PeerProbe
	for _, p := range probes {
		from := transport.PeerProbe{Origin: fromAskID(p.GetOrigin()), At: int(p.GetAt()), Again: p.GetAgain()}
		for _, step := range p.GetWay() {
			from.Way = append(from.Way, transport.PeerStep{Ask: fromAskID(step.GetAsk()), Made: step.GetMade()})
		}
		out = append(out, from)
	}
	return out
}

// unwritable names what of a question the wire does not carry: gRPC finds out when it has begun to send, and then nobody could tell what was done.
func unwritable(q *transport.PeerAsk) error {
	for _, part := range []struct{ what, text string }{
		{"the kind of the entity", q.To.Name}, {"the id of the entity", q.To.Key}, {"the type", q.Type}, {"the command id", q.CommandID}, {"the correlation id", q.CorrelationID},
		{"the causation id", q.CausationID}, {"the tenant", q.Tenant}, {"the trace", q.Trace.Parent}, {"the state of the trace", q.Trace.State},
	} {
		if !utf8.ValidString(part.text) {
			return notText(part.what, part.text)
		}
	}
	return unwritableUnits(q.Waiting)
}

func unwritableUnits(units []event.Unit) error {
	for _, u := range units {
		if !utf8.ValidString(u.Name) || !utf8.ValidString(u.Key) {
			return notText("a unit", u.Name+"/"+u.Key)
		}
	}
	return nil
}

func notText(what, text string) error {
	return &transport.PeerError{Code: transport.PeerBad, Text: fmt.Sprintf("%s, %q, is not valid UTF-8: use text, such as the hexadecimal form of the bytes", what, shortened(text, 64))}
}

// mostText is how many bytes of an error's text go over the wire at most.
const mostText = 64 << 10

// shortened gives the beginning of a text as valid UTF-8 of at most so many bytes.
func shortened(text string, most int) string {
	const more = " ..."
	if len(text) <= most && utf8.ValidString(text) {
		return text
	}
	text = strings.ToValidUTF8(text[:min(len(text), most+1)], "\uFFFD")
	if len(text) <= most {
		return text
	}
	cut := max(most-len(more), 0)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}

// fromQuestion refuses what no asker of any release says.
func fromQuestion(q *nodev1.Question) (transport.PeerAsk, error) {
	bad := func(err error) (transport.PeerAsk, error) {
		return transport.PeerAsk{}, &transport.PeerError{Code: transport.PeerBad, Text: "the question cannot be read: " + err.Error()}
	}
	encoding, err := fromEncoding(q.GetEncoding())
	switch {
	case err != nil:
		return bad(err)
	case q.GetTo().GetName() == "" || q.GetTo().GetKey() == "":
		return bad(errors.New("it does not say for which entity it is"))
	case q.GetType() == "":
		return bad(errors.New("it has no type"))
	case q.GetVersion() < 0:
		return bad(fmt.Errorf("version %d", q.GetVersion()))
	}
	return transport.PeerAsk{To: event.Unit{Name: q.To.Name, Key: q.To.Key}, Type: q.Type, Version: int(q.Version), Encoding: encoding, Data: q.Data,
		CommandID: q.CommandId, CorrelationID: q.CorrelationId, CausationID: q.CausationId, Tenant: q.Tenant, Trace: event.Trace{Parent: q.Traceparent, State: q.Tracestate},
		Waiting: fromUnits(q.Waiting), Decide: q.Decide, ID: fromAskID(q.Id)}, nil
}

func toReply(r transport.PeerReply) *nodev1.AskResponse {
	return &nodev1.AskResponse{Outcome: &nodev1.AskResponse_Reply{Reply: &nodev1.Reply{Type: r.Type, Version: int32(r.Version), Encoding: toEncoding(r.Encoding), Data: r.Data,
		Generation: uint64(r.Generation)}}}
}

func fromAnswer(a *nodev1.AskResponse) (transport.PeerReply, error) {
	if f := a.GetFailure(); f != nil {
		return transport.PeerReply{}, fromFailure(f)
	}
	r := a.GetReply()
	encoding, err := fromEncoding(r.GetEncoding())
	if r == nil {
		err = errors.New("it is neither a reply nor an error")
	}
	if err != nil {
		return transport.PeerReply{}, &transport.PeerError{Code: transport.PeerBad, Text: "the answer cannot be read: " + err.Error(), Unknown: true}
	}
	return transport.PeerReply{Type: r.Type, Version: int(r.Version), Encoding: encoding, Data: r.Data, Generation: event.Generation(r.Generation)}, nil
}

// toFailure tells what a service's error is, in so many bytes of text at most. One that is not of the port says nothing of what was done.
func toFailure(err error, most int) *nodev1.Failure {
	var e *transport.PeerError
	switch {
	case errors.As(err, &e):
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		e = &transport.PeerError{Code: transport.PeerEnded, Text: err.Error(), Unknown: true}
	default:
		e = &transport.PeerError{Code: transport.PeerFailed, Text: err.Error(), Unknown: true}
	}
	f := &nodev1.Failure{Code: nodev1.Code(max(slices.Index(peerCodes, e.Code), 0)), Text: shortened(e.Text, min(most, mostText)), Unknown: e.Unknown}
	if e.Owner != (transport.PeerOwner{}) {
		f.Owner = &nodev1.Owner{Id: e.Owner.ID, Address: e.Owner.Address, Generation: uint64(e.Owner.Generation)}
	}
	if e.Most != 0 {
		f.Most = durationpb.New(e.Most)
	}
	return f
}

func fromFailure(f *nodev1.Failure) error {
	if f == nil {
		return nil
	}
	e := &transport.PeerError{Code: transport.PeerFailed, Text: f.Text, Unknown: f.Unknown,
		Owner: transport.PeerOwner{ID: f.GetOwner().GetId(), Address: f.GetOwner().GetAddress(), Generation: event.Generation(f.GetOwner().GetGeneration())}}
	if f.Code > 0 && int(f.Code) < len(peerCodes) {
		e.Code = peerCodes[f.Code]
	} else {
		e.Text = fmt.Sprintf("%s (an error of a kind that this program does not know: %d)", f.Text, f.Code)
	}
	if f.Most.IsValid() {
		e.Most = max(f.Most.AsDuration(), 0)
	}
	return e
}

func toMember(m transport.Member) *nodev1.Member {
	out := &nodev1.Member{Id: m.ID, Node: m.Node, Pid: int64(m.PID), StoreId: m.StoreID, Start: uint64(m.Start), Names: m.Names, Draining: m.Draining, Weight: int64(m.Weight),
		Address: m.Address, Gossip: m.Gossip, Version: m.Version, Apart: m.Apart, Wants: toUnits(m.Wants), Beats: m.Beats}
	if !m.Since.IsZero() {
		out.Since = timestamppb.New(m.Since)
	}
	return out
}

func fromMember(m *nodev1.Member) transport.Member {
	var since time.Time
	if m.GetSince().IsValid() {
		since = m.Since.AsTime()
	}
	return transport.Member{ID: m.GetId(), Node: m.GetNode(), PID: int(m.GetPid()), StoreID: m.GetStoreId(), Start: event.Generation(m.GetStart()), Names: m.GetNames(),
		Draining: m.GetDraining(), Weight: int(m.GetWeight()), Since: since, Address: m.GetAddress(), Gossip: m.GetGossip(), Version: m.GetVersion(), Apart: m.GetApart(), Wants: fromUnits(m.GetWants()),
		Beats: m.GetBeats()}
}

func toStatus(s transport.PeerStatus) *nodev1.StatusResponse {
	out := &nodev1.StatusResponse{Member: toMember(s.Member), Ready: shortened(s.Ready, mostText)}
	for _, m := range s.Members {
		out.Members = append(out.Members, toMember(m))
	}
	return out
}

func fromStatus(s *nodev1.StatusResponse) transport.PeerStatus {
	out := transport.PeerStatus{Member: fromMember(s.GetMember()), Ready: s.GetReady()}
	for _, m := range s.GetMembers() {
		out.Members = append(out.Members, fromMember(m))
	}
	return out
}
