package postgres

import (
	"net"
	"syscall"
	"testing"
	"time"
)

func TestConnectionsNoticeSilence(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	conn, err := dialer(1234*time.Millisecond).DialContext(t.Context(), "tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got int
	if controlled := raw.Control(func(fd uintptr) { got, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout) }); controlled != nil || err != nil {
		t.Fatal(controlled, err)
	}
	if got != 1234 {
		t.Errorf("user timeout is %d ms", got)
	}
}
