// Package arch tests the architecture: what may import what, who may start a goroutine, how long a file may be. It has no
// other purpose; its tests read the source of the whole module and name each fault by file, line and remedy.
//
//   - layers.go: the table of packages and of what each may import. A new package gets its row there, with a reason.
//   - modules.go: the table of modules of others and of the packages that may import them.
//   - imports.go: checks both tables against the source.
//   - statements.go: goroutines, waiting in tests, contexts kept in structs; exceptions with their reasons.
//   - shape.go: folder names, package comments, lengths of files.
//   - words.go: words that have no place in the repository.
//
// Every exception is a row with a reason, and a row that excepts nothing any more is a fault too. Every rule has a test of
// its own that breaks it and sees it caught.
package arch
