package userspace

import (
	"bufio"
	"errors"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// probeTimeout bounds one question to a tunnel. It answers in under a millisecond, unless the
// machine is overloaded or somebody stopped it.
const probeTimeout = 2 * time.Second

// Find returns the process that serves the device's socket, if there is one and it answers. The
// process id is what the kernel says of the socket, so it cannot be stale, and is never read
// from a file; it is 0 when the process is in a process namespace that cannot be seen from here.
func Find(device string) (pid int, alive bool) {
	if checkName(device) != nil {
		return 0, false
	}
	conn, pid, err := connect(device)
	if err != nil {
		return 0, false
	}
	defer conn.Close()
	return pid, answers(conn)
}

// connect returns a connection to the process that serves the device's socket, which may yet hang.
// ECONNREFUSED is what a dead process leaves.
func connect(device string) (conn *net.UnixConn, pid int, err error) {
	conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: socketPath(device), Net: "unix"})
	if err != nil {
		return nil, 0, err
	}
	if pid, err = listenerOf(conn); err != nil {
		return nil, 0, errors.Join(err, conn.Close())
	}
	return conn, pid, nil
}

// listener is connect without the connection.
func listener(device string) (pid int, err error) {
	conn, pid, err := connect(device)
	if err != nil {
		return 0, err
	}
	return pid, conn.Close()
}

// answers asks for nothing ("set" without a line) and expects "errno=0".
func answers(conn *net.UnixConn) bool {
	if err := conn.SetDeadline(time.Now().Add(probeTimeout)); err != nil {
		return false
	}
	if _, err := conn.Write([]byte("set=1\n\n")); err != nil {
		return false
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && line == "errno=0\n"
}

// listenerOf returns the process that listens at the other end (SO_PEERCRED, unix(7)).
func listenerOf(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	controlErr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(controlErr, err); err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

// removeStale removes the socket file that a killed process left behind.
func removeStale(device string) error {
	_, err := listener(device)
	if !errors.Is(err, unix.ECONNREFUSED) {
		return nil
	}
	if err := os.Remove(socketPath(device)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
