package redis

import (
	"strconv"
	"strings"

	"github.com/keyhold/keyhold/event"
)

// slots is how many hash slots a Cluster has.
const slots = 16384

// crc16 is the table of CRC-16/XMODEM, which Redis hashes keys with.
var crc16 = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()

// slotOf is the hash slot of a key: of its tag, if it has one.
func slotOf(key string) uint16 {
	if start := strings.IndexByte(key, '{'); start >= 0 {
		if end := strings.IndexByte(key[start+1:], '}'); end > 0 {
			key = key[start+1 : start+1+end]
		}
	}
	var crc uint16
	for i := range len(key) {
		crc = crc<<8 ^ crc16[byte(crc>>8)^key[i]]
	}
	return crc % slots
}

// birthOwner owns the name of the birth key.
const birthOwner = "keyhold"

// birthKey is the name of the birth key of a server. In a Cluster each master has one of its own, in a slot of its own: the tag is the first number whose
// slot the master has.
func (c *connection) birthKey(s *server) string {
	name := mustName(c.names, event.Name{Kind: event.NameBirth, Owner: birthOwner})
	if !c.servers.cluster || s == nil {
		return name
	}
	if known := s.birth.Load(); known != nil && c.servers.of(*known) == s {
		return *known
	}
	for n := range slots * 16 { // every slot has a number below that, as a test shows
		if tagged := name + ":{" + strconv.Itoa(n) + "}"; c.servers.of(tagged) == s {
			s.birth.Store(&tagged)
			return tagged
		}
	}
	return name // it has no slot any more, and refuses
}

// mustName is for names that no input has a part in.
func mustName(names event.Names, n event.Name) string {
	text, err := names.Build(n)
	if err != nil {
		panic("redis: " + err.Error())
	}
	return text
}
