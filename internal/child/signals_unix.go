//go:build unix

package child

import "syscall"

const (
	stop = syscall.SIGSTOP
	cont = syscall.SIGCONT
	kill = syscall.SIGKILL
)

func attributes(as *User) (*syscall.SysProcAttr, error) {
	a := &syscall.SysProcAttr{Setpgid: true}
	if as != nil {
		a.Credential = &syscall.Credential{Uid: as.UID, Gid: as.GID}
	}
	return a, nil
}

func send(pid int, s syscall.Signal) error { return syscall.Kill(pid, s) }
