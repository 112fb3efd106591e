// Package admin is what operators do to a running application: list what is stuck, and set it going again. An application ([Operator] is
// implemented by keyhold.App) offers it in the same process.
//
// Every act is compare-and-act: it names the state that the operator saw, and is refused with the present one when that
// has changed.
package admin
