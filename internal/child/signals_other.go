//go:build !unix

package child

import (
	"fmt"
	"syscall"
)

const (
	stop = syscall.Signal(0x13)
	cont = syscall.Signal(0x12)
	kill = syscall.SIGKILL
)

var errSignals = fmt.Errorf("child processes need the signals of Unix: %w", syscall.ENOTSUP)

func attributes(*User) (*syscall.SysProcAttr, error) { return nil, errSignals }

func send(int, syscall.Signal) error { return errSignals }
