// Package intake takes what other programs write to streams of their own into the store: from there on its events are like all others.
//
// Such programs only append (XADD): entries have ids that the broker gave them, no sequence, and nobody keeps what the broker loses. So an entry becomes a record of a category
// of this application: in one transaction it gets the next sequence of its partition, the place in the stream moves by compare-and-set, and its event id is remembered. The relay
// publishes it as it does every record, and handlers, halts, history and rebuilds know no difference.
//
// What it promises: entries of a stream become records in stream order, each event id once within the retention of ids, whoever takes in, however often it
// is killed, and also where the stream was deleted and is written anew. What was gone from a stream before it was taken in is counted and told, and never comes. What is no event
// becomes a record of type [event.Malformed], which is poison to handlers: it stands in the order where it stood.
//
// It does not trim, acknowledge or write to the streams, and nothing is done for quiet ones but one look at many of them.
//
// Reading order: entry.go (an entry becomes a record) and decide.go (what was read becomes a commit), both pure; intake.go carries it out.
package intake
