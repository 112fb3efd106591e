package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/keyhold/keyhold/partitions"
)

// Codes of replies.
const (
	codeNoScript = "NOSCRIPT"
	codeMoved    = "MOVED"
	codeAsk      = "ASK"
	codeOOM      = "OOM"
)

// refusals are the codes of replies with which a server tells that it has not begun with a call.
var refusals = map[string]bool{
	codeNoScript: true, codeMoved: true, codeAsk: true, codeOOM: true, "LOADING": true, "READONLY": true, "BUSY": true, "CLUSTERDOWN": true, "TRYAGAIN": true,
	"CROSSSLOT": true, "MASTERDOWN": true, "MISCONF": true, "NOREPLICAS": true, "NOAUTH": true, "NOPERM": true, "WRONGPASS": true,
}

// codeOf is the code of an error that a server replied with, "" for any other error. A script hands on the code of the command that refused.
func codeOf(err error) string {
	var reply goredis.Error
	if err == nil || !errors.As(err, &reply) || errors.Is(err, goredis.Nil) {
		return ""
	}
	text := strings.TrimPrefix(reply.Error(), "-")
	if _, inner, ok := strings.Cut(text, ": -"); ok && strings.HasPrefix(text, "ERR ") { // as servers before 7.0 put it
		text = inner
	}
	code, _, _ := strings.Cut(text, " ")
	if code == "" || code != strings.ToUpper(code) {
		return ""
	}
	return code
}

// outcome gives the error of a call the class it has for whoever made it: of kind [partitions.ErrUnknown] when it may have been carried out. Calls that
// certainly changed nothing keep their error, and so does one whose context was done before it began.
func outcome(err error) error {
	switch {
	case err == nil, errors.Is(err, partitions.ErrUnknown), errors.Is(err, errNotSent):
		return err
	case refusals[codeOf(err)], unreached(err):
		return err
	}
	return fmt.Errorf("%w: %w", partitions.ErrUnknown, err)
}

// unreached reports whether there was no connection on which anything could have been sent.
func unreached(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	var dns *net.DNSError
	return errors.As(err, &dns) || errors.Is(err, goredis.ErrPoolTimeout) || errors.Is(err, goredis.ErrPoolExhausted) || errors.Is(err, goredis.ErrClosed)
}

// errNotSent: a call was not sent at all.
var errNotSent = errors.New("not sent")

// notSent is the error of a call that was given up before it was sent.
func notSent(ctx context.Context) error {
	return fmt.Errorf("%w: %w", errNotSent, context.Cause(ctx))
}
