package event

import (
	"fmt"
	"strconv"
	"strings"
)

// NameKind says what a [Name] names.
type NameKind uint8

// Of a category and a key, of a category, of a subscriber and a key, and of a subscriber. A subscriber is a handler, a
// process manager or an entity kind.
const (
	NamePartition      NameKind = iota + 1 // order:client-123                     stream: primary lane
	NameBackfill                           // order:client-123:backfill            stream: backfill lane
	NameDeadLetters                        // order:client-123:dlq                 never written: dead letters are rows; kept free
	NameIndex                              // order:__partitions__                 set of live keys
	NameDescriptor                         // order:__category__                   hash: key field, producing store
	NameHandlers                           // order:__handlers__                   hash: registered subscribers
	NameMissing                            // order:__missing__                    hash: runs that subscribers ask the producer for
	NameLease                              // shipping:client-123:__lease__        string: a Holder, while the lease lasts
	NameGeneration                         // shipping:client-123:__generation__   string: last generation
	NameMissingRun                         // shipping:client-123:__missing__      stream: a run that was asked for
	NameBusy                               // shipping:__busy__                    set of keys with unfinished work
	NameHalted                             // shipping:__halted__                  set of halted keys, a hint
	NameWake                               // shipping:__wake__                    channel
	NameNewest                             // order:client-123:__newest__          string: sequence and event id of the newest entry of the primary lane
	NameNewestBackfill                     // order:client-123:__newest_backfill__ string: likewise of the backfill lane
	NameMembers                            // 1f0c…:__members__                    hash, by store id: nodes that take part
	NameBirth                              // keyhold:__birth__                    string: since when the broker remembers; one for each master of a cluster
	NameSubscriber                         // shipping:__subscriber__              hash: the subscriber's store, kind and categories
	NameParts                              // 1f0c…:__parts__                      hash, by store id: leases and generations of the store's parts
)

// forms gives what each kind of name is made of: always an owner, then a key, a suffix or both.
var forms = [...]struct {
	label  string
	keyed  bool
	suffix string
}{
	NamePartition:   {label: "partition", keyed: true},
	NameBackfill:    {label: "backfill lane", keyed: true}, // the suffix is a matter of KeyRules
	NameDeadLetters: {label: "dead letters", keyed: true, suffix: deadLetterSuffix},
	NameIndex:       {label: "partition index", suffix: "__partitions__"},
	NameDescriptor:  {label: "category descriptor", suffix: "__category__"},
	NameHandlers:    {label: "registered handlers", suffix: "__handlers__"},
	NameMissing:     {label: "missing runs", suffix: "__missing__"},
	NameLease:       {label: "lease", keyed: true, suffix: "__lease__"},
	NameGeneration:  {label: "generation", keyed: true, suffix: "__generation__"},
	NameMissingRun:  {label: "missing run", keyed: true, suffix: "__missing__"},
	NameBusy:        {label: "busy keys", suffix: "__busy__"},
	NameHalted:      {label: "halted keys", suffix: "__halted__"},
	NameWake:        {label: "wake channel", suffix: "__wake__"},

	NameNewest:         {label: "newest entry", keyed: true, suffix: "__newest__"},
	NameNewestBackfill: {label: "newest entry of the backfill lane", keyed: true, suffix: "__newest_backfill__"},
	NameMembers:        {label: "members", suffix: "__members__"},
	NameBirth:          {label: "birth of the broker", suffix: "__birth__"},
	NameSubscriber:     {label: "subscriber", suffix: "__subscriber__"},
	NameParts:          {label: "parts", suffix: "__parts__"},
}

func (k NameKind) valid() bool { return k >= NamePartition && int(k) < len(forms) }

func (k NameKind) String() string {
	if !k.valid() {
		return "name kind " + strconv.Itoa(int(k))
	}
	return forms[k].label
}

// Name is the name of something that Keyhold keeps in a broker, in its parts. [Names] gives its text.
type Name struct {
	Kind  NameKind
	Owner string // category or subscriber, as Kind asks
	Key   string // "" for what belongs to a whole category or subscriber
}

// LaneName is the name of the stream of a broker lane.
func LaneName(r LaneRef) Name {
	if r.Lane == Backfill {
		return Name{Kind: NameBackfill, Owner: r.Category, Key: r.Key}
	}
	return Name{Kind: NamePartition, Owner: r.Category, Key: r.Key}
}

// Lane is the broker lane whose stream n names; false if it names something else.
func (n Name) Lane() (LaneRef, bool) {
	switch n.Kind {
	case NamePartition:
		return LaneRef{Category: n.Owner, Key: n.Key, Lane: Primary}, true
	case NameBackfill:
		return LaneRef{Category: n.Owner, Key: n.Key, Lane: Backfill}, true
	}
	return LaneRef{}, false
}

// String describes the name in messages; it is not the text that a broker sees.
func (n Name) String() string {
	if n.Key == "" {
		return n.Kind.String() + " of " + show(n.Owner)
	}
	return n.Kind.String() + " of " + show(n.Owner) + ", key " + show(n.Key)
}

// Names translates between a [Name] and its text. All processes that share a broker and a namespace must use equal
// Names. The zero value is ready to use. Build and Parse are exact inverses: each refuses what the other cannot make.
type Names struct {
	Keys KeyRules
	// Namespace, unless "", is put before every name, with two colons. No name without a namespace has two colons in a
	// row, so applications with different namespaces, or none, never meet on one broker.
	Namespace string
	// Cluster writes keys as hash tags, order:{client-123}: on Redis Cluster all names of one key share a slot.
	Cluster bool
}

// Validate reports whether the settings themselves can hold.
func (n Names) Validate() error {
	if err := n.Keys.Validate(); err != nil {
		return err
	}
	if n.Namespace == "" {
		return nil
	}
	if err := CheckName(n.Namespace); err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	return nil
}

// Build gives the text of a name. The error is a [*NameError], or a [*KeyError] for its key.
func (n Names) Build(name Name) (string, error) {
	if !name.Kind.valid() {
		return "", &NameError{Name: name.Owner, Reason: "has no kind"}
	}
	if err := CheckName(name.Owner); err != nil {
		return "", err
	}
	suffix := n.suffix(name.Kind)
	if suffix != "" {
		suffix = ":" + suffix
	}
	if !forms[name.Kind].keyed {
		if name.Key != "" {
			return "", &KeyError{Key: name.Key, Reason: "has no place in the name of " + name.Kind.String() + ": leave it out"}
		}
		return n.prefix() + name.Owner + suffix, nil
	}
	if err := n.Keys.Check(name.Key); err != nil {
		return "", err
	}
	return n.prefix() + name.Owner + ":" + n.tag(name.Key) + suffix, nil
}

// Parse takes the text of a name apart. The error is a [*NameError], or a [*KeyError] for its key.
func (n Names) Parse(text string) (Name, error) {
	rest, ok := strings.CutPrefix(text, n.prefix())
	if !ok {
		return Name{}, &NameError{Name: text, Reason: "is not in namespace " + show(n.Namespace)}
	}
	owner, rest, ok := strings.Cut(rest, ":")
	if !ok {
		return Name{}, &NameError{Name: text, Reason: "has no colon"}
	}
	name := Name{Owner: owner}
	if key, suffix, ok := strings.Cut(rest, ":"); ok {
		name.Kind, name.Key = n.kind(true, suffix), n.untag(key)
	} else if name.Kind = n.kind(false, rest); name.Kind == 0 {
		name.Kind, name.Key = NamePartition, n.untag(rest)
	}
	if name.Kind == 0 {
		return Name{}, &NameError{Name: text, Reason: "ends in nothing that Keyhold uses"}
	}
	switch back, err := n.Build(name); {
	case err != nil:
		return Name{}, fmt.Errorf("parse %s: %w", show(text), err)
	case back != text:
		return Name{}, &NameError{Name: text, Reason: "is not as Keyhold writes it, which would be " + show(back)}
	}
	return name, nil
}

// kind finds the kind of name with that suffix, 0 if there is none.
func (n Names) kind(keyed bool, suffix string) NameKind {
	for kind := NamePartition; kind.valid(); kind++ {
		if forms[kind].keyed == keyed && n.suffix(kind) == suffix {
			return kind
		}
	}
	return 0
}

func (n Names) suffix(kind NameKind) string {
	if kind == NameBackfill {
		return n.Keys.suffix()
	}
	return forms[kind].suffix
}

func (n Names) prefix() string {
	if n.Namespace == "" {
		return ""
	}
	return n.Namespace + "::"
}

// tag gives a key as it stands in a name, untag takes it from there; what is no tag stays as it is, for Build to refuse.
func (n Names) tag(key string) string {
	if n.Cluster {
		return "{" + key + "}"
	}
	return key
}

func (n Names) untag(s string) string {
	if n.Cluster && len(s) >= 2 && s[0] == '{' && s[len(s)-1] == '}' {
		return s[1 : len(s)-1]
	}
	return s
}

// Holder is who holds a lease, and its consumer in the group of the subscriber.
type Holder struct {
	Owner      string // one incarnation of a process
	Generation Generation
}

// String is the text that ParseHolder reads.
func (h Holder) String() string { return h.Owner + ":" + h.Generation.String() }

// ParseHolder takes the text of a holder apart; the error is a [*NameError]. It refuses what no owner could have written.
func ParseHolder(text string) (Holder, error) {
	owner, number, _ := strings.Cut(text, ":")
	if err := CheckName(owner); err != nil {
		return Holder{}, fmt.Errorf("parse holder %s: %w", show(text), err)
	}
	generation, err := strconv.ParseUint(number, 10, 64)
	h := Holder{Owner: owner, Generation: Generation(generation)}
	if err != nil || generation == 0 || h.String() != text {
		return Holder{}, &NameError{Name: text, Reason: "is no holder: an owner, a colon and a generation from 1"}
	}
	return h, nil
}
