//go:build !unix

package child

import "syscall"

const (
	stop = syscall.Signal(0x13)
	cont = syscall.Signal(0x12)
	kill = syscall.SIGKILL
)

func attributes(*User) (*syscall.SysProcAttr, error) { return nil, errSignals }

func send(int, syscall.Signal) error { return errSignals }
