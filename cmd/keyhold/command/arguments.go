package command

import (
	"github.com/spf13/cobra"

	"github.com/keyhold/keyhold/admin"
)

// argument reads a name that may be given as the first argument or by a flag.
func argument(args []string, flag *string, name string) error {
	switch {
	case len(args) == 0 || args[0] == *flag:
		return nil
	case *flag != "":
		return misused("Leave one of them out.", "the %s is %q by its argument and %q by --%s", name, args[0], *flag, name)
	}
	*flag = args[0]
	return nil
}

// paging gives a list its flags.
func paging(c *cobra.Command, limit *int, cursor *string) {
	c.Flags().IntVar(limit, "limit", admin.DefaultLimit, "at most `N`, up to "+count(admin.MaxLimit))
	c.Flags().StringVar(cursor, "after", "", "begin after the page that ended with this `CURSOR`")
}

// more tells how to get the next page.
func (p *page) more(next string) {
	if next != "" {
		p.hint("There are more: add --after " + next)
	}
}

// orEmpty is a list that is [] in JSON.
func orEmpty[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}
