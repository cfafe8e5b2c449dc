package userspace

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// socketDir is where wgctrl and wg(8) look for userspace devices.
	socketDir = "/var/run/wireguard"
	// socketCheck is how often a tunnel looks whether its socket is still there.
	socketCheck = 5 * time.Second
)

func socketPath(device string) string { return filepath.Join(socketDir, device+".sock") }

// socket takes configuration requests for a device. One goroutine owns it: the one that listened
// calls restore and close.
type socket struct {
	path     string
	handle   func(net.Conn)
	listener *net.UnixListener
	bound    os.FileInfo // the file of listener, which others may remove

	work  sync.WaitGroup // acceptors and handlers
	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil once closed
}

// listen serves path, each connection by handle, which closes it. What a dead process left there is
// replaced; a socket that is alive is an error.
func listen(path string, handle func(net.Conn)) (*socket, error) {
	s := &socket{path: path, handle: handle, conns: map[net.Conn]struct{}{}}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return s, nil
}

// open binds beside path and renames: the socket is never there with an open mode, and never there
// without somebody who listens.
func (s *socket) open() error {
	if conn, err := net.Dial("unix", s.path); err == nil {
		_ = conn.Close()
		return errors.New("a process serves it already; tunnels of one name in several network namespaces " +
			"need a folder of their own mounted there")
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o755); err != nil {
		return err
	}
	beside := fmt.Sprintf("%s.%d", s.path, os.Getpid())
	_ = os.Remove(beside) // of a process that had the same number and died just here
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: beside, Net: "unix"})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false) // it has moved by then
	bound, err := publish(beside, s.path)
	if err != nil {
		return errors.Join(err, listener.Close(), os.Remove(beside))
	}
	if s.listener != nil {
		_ = s.listener.Close() // ends its acceptor
	}
	s.listener, s.bound = listener, bound
	s.work.Go(func() { s.accept(listener) })
	return nil
}

func publish(beside, path string) (os.FileInfo, error) {
	if err := os.Chmod(beside, 0o600); err != nil {
		return nil, err
	}
	bound, err := os.Lstat(beside)
	if err != nil {
		return nil, err
	}
	return bound, os.Rename(beside, path)
}

func (s *socket) accept(listener *net.UnixListener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no file descriptor, no memory
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if !s.add(conn) {
			_ = conn.Close()
			return
		}
		s.work.Go(func() {
			defer s.remove(conn)
			s.handle(conn)
		})
	}
}

// restore listens anew when the file is gone: without it the device could not be configured, and
// the process could not be found.
func (s *socket) restore() error {
	if s.present() {
		return nil
	}
	return s.open()
}

// present says whether path is the file that was bound, and not another process's.
func (s *socket) present() bool {
	file, err := os.Lstat(s.path)
	return err == nil && os.SameFile(file, s.bound)
}

// close removes the file, ends all connections and waits for their handlers.
func (s *socket) close() {
	if s.present() {
		_ = os.Remove(s.path)
	}
	_ = s.listener.Close()
	s.mu.Lock()
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.work.Wait()
}

func (s *socket) add(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		return false
	}
	s.conns[conn] = struct{}{}
	return true
}

func (s *socket) remove(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
}
