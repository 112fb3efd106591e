package postgres

import (
	"strconv"

	"github.com/keyhold/keyhold/event"
)

// arguments are those of a statement that is put together.
type arguments []any

// add adds one and gives its place in the statement.
func (a *arguments) add(v any) string {
	*a = append(*a, v)
	return "$" + strconv.Itoa(len(*a))
}

// unitsAfter is the condition of a page of units, on the columns name and key of the table given, in a form that begins at the right place of
// an index on them.
func (a *arguments) unitsAfter(table, name string, after event.Unit) string {
	switch {
	case name == "":
		return `(` + table + `.name, ` + table + `.key) > (` + a.add(after.Name) + `, ` + a.add(after.Key) + `)`
	case name > after.Name:
		return table + `.name = ` + a.add(name)
	case name == after.Name:
		return table + `.name = ` + a.add(name) + ` AND ` + table + `.key > ` + a.add(after.Key)
	}
	return `FALSE`
}
