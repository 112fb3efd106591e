package keyhold

import (
	"slices"
	"strconv"

	"github.com/keyhold/keyhold/admin"
	"github.com/keyhold/keyhold/event"
	"github.com/keyhold/keyhold/eventstore"
	"github.com/keyhold/keyhold/partitions"
	"github.com/keyhold/keyhold/transport"
)

// settingsOf are what all nodes of an application must have alike, by the names under which they are set.
func settingsOf(t partitions.Traits, l transport.Limits, c Config) map[string]string {
	suffix := c.BackfillSuffix
	if suffix == "" {
		suffix = event.DefaultBackfillSuffix
	}
	return map[string]string{"TTL": t.TTL.String(), "MaxAhead": strconv.Itoa(l.MaxAhead), "RetireAfter": l.RetireAfter.String(), "BackfillSuffix": suffix}
}

// unlike gives the settings of others that differ from ours. Who does not name one is taken to have it as we do.
func unlike(ours map[string]string, present []eventstore.Owner) []admin.Setting {
	return slices.DeleteFunc(admin.SettingsOf(present), func(s admin.Setting) bool {
		own, known := ours[s.Name]
		return !known || own == s.Value
	})
}

// tellUnlike says once of each setting that others have it in another way, and once that all have the same again. Nobody is refused for it: a rolling restart that changes one
// must be possible.
func (p *presence) tellUnlike(c *shared, present []eventstore.Owner) {
	log, before := c.r.app.cfg.Logger, p.unlike
	p.unlike = map[string]bool{}
	for _, u := range unlike(c.settings, present) {
		what, who := u.Name+" "+u.Value, u.Owners[0]
		p.unlike[what] = true
		if !before[what] {
			log.Warn("another node has a setting otherwise that must be the same on all: the restart of the other nodes ends that, if it was changed; else set it alike, and restart those that have the wrong one",
				"setting", u.Name, "here", c.settings[u.Name], "there", u.Value, "node", who.Node, "pid", who.PID, "others", len(u.Owners)-1)
		}
	}
	if len(before) > 0 && len(p.unlike) == 0 {
		log.Info("all nodes have the same settings again")
	}
}
