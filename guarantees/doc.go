// Package guarantees tests what Keyhold promises from outside: applications as processes of the operating system, killed with
// SIGKILL in the middle of their work, judged by what they left in the database and in a file of markers that no rollback
// touches.
//
// The test binary runs itself as the application under test. Everything is in tests; there is nothing to import.
//
// Reading order: oracle_test.go (what is checked), app_test.go (the application), kill_test.go.
package guarantees
