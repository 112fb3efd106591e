package redis

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnfitServersAreToldApart(t *testing.T) {
	t.Parallel()
	good := "redis_version:7.0.15\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\nrole:master\r\n"
	for name, c := range map[string]struct {
		info string
		want []string
	}{
		"good":             {good, nil},
		"valkey":           {"redis_version:7.2.4\r\nvalkey_version:8.0.1\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\nrole:master\r\n", nil},
		"6.2":              {strings.ReplaceAll(good, "7.0.15", "6.2.0"), nil},
		"6.2 with a limit": {strings.ReplaceAll(strings.ReplaceAll(good, "7.0.15", "6.2.14"), "maxmemory:0", "maxmemory:1000"), []string{"set maxmemory to 0"}},
		"6.0":              {strings.ReplaceAll(good, "7.0.15", "6.0.20"), []string{"must be 6.2 or later"}},
		"5":                {strings.ReplaceAll(good, "7.0.15", "5.0.14"), []string{"must be 6.2 or later"}},
		"evicting":         {strings.ReplaceAll(good, "noeviction", "volatile-lru"), []string{"maxmemory-policy is volatile-lru"}},
		"a replica":        {strings.ReplaceAll(good, "role:master", "role:slave\r\nmaster_host:10.0.0.7\r\nmaster_port:6379"), []string{"a slave of 10.0.0.7:6379"}},
		"everything at once": {"redis_version:4.0\r\nmaxmemory:1\r\nmaxmemory_policy:allkeys-lfu\r\nrole:slave\r\nmaster_host:h\r\nmaster_port:1\r\n",
			[]string{"must be 6.2", "allkeys-lfu", "a slave of h:1"}},
	} {
		faults := unfit(c.info)
		if len(faults) != len(c.want) {
			t.Errorf("%s: %v, want %d faults", name, faults, len(c.want))
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(faults[i].Error(), want) {
				t.Errorf("%s: %v, want something about %q", name, faults[i], want)
			}
		}
	}
}

func TestACLLineNamesWhatIsTried(t *testing.T) {
	t.Parallel()
	line := acl("shop", "prod", true)
	for _, want := range []string{"ACL SETUSER shop on ~prod::* &prod::* -@all +", " +xadd ", " +cluster|slots ", " +evalsha ", " +publish "} {
		if !strings.Contains(line, want) {
			t.Errorf("%q has no %q", line, want)
		}
	}
	if diff := cmp.Diff("ACL SETUSER shop on ~* &* -@all +", Config{}.ACL("shop")[:len("ACL SETUSER shop on ~* &* -@all +")]); diff != "" {
		t.Error(diff)
	}
}
