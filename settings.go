package keyhold

import (
	"maps"
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

// otherwise is a setting that other processes have in another way.
type otherwise struct {
	setting, value string
	owner          eventstore.Owner // the first that has it so
	others         int              // that have it so as well
}

// unlike gives the settings of others that differ from ours, in order. Who does not name one is taken to have it as we do.
func unlike(ours map[string]string, present []eventstore.Owner) (all []otherwise) {
	for _, o := range present {
		a := admin.AboutOf(o.About)
		if a == nil {
			continue
		}
		for _, setting := range slices.Sorted(maps.Keys(a.Settings)) {
			value := a.Settings[setting]
			if own, known := ours[setting]; !known || own == value {
				continue
			}
			if i := slices.IndexFunc(all, func(u otherwise) bool { return u.setting == setting && u.value == value }); i >= 0 {
				all[i].others++
				continue
			}
			all = append(all, otherwise{setting: setting, value: value, owner: o})
		}
	}
	return all
}

// tellUnlike says once of each setting that others have it in another way, and once that all have the same again. Nobody is refused for it: a rolling restart that changes one
// must be possible.
func (p *presence) tellUnlike(c *shared, present []eventstore.Owner) {
	log, before := c.r.app.cfg.Logger, p.unlike
	p.unlike = map[string]bool{}
	for _, u := range unlike(c.settings, present) {
		what := u.setting + " " + u.value
		p.unlike[what] = true
		if !before[what] {
			log.Warn("another node has a setting otherwise that must be the same on all: the restart of the other nodes ends that, if it was changed; else set it alike, and restart those that have the wrong one",
				"setting", u.setting, "here", c.settings[u.setting], "there", u.value, "node", u.owner.Node, "pid", u.owner.PID, "others", u.others)
		}
	}
	if len(before) > 0 && len(p.unlike) == 0 {
		log.Info("all nodes have the same settings again")
	}
}
