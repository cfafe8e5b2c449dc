package userspace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// LauncherSocket is the file in the run directory through which agents ask the launcher.
const LauncherSocket = "launcher.sock"

// questionLimit is more than the longest question: a device name, a space and an MTU.
const questionLimit = 64

// LauncherOptions of Launch; all are needed.
type LauncherOptions struct {
	// RunDir is the run directory of the agents that it serves.
	RunDir string
	// Executable runs Run as `EXECUTABLE tunnel …`.
	Executable string
	Log        *slog.Logger
}

// Launch starts tunnel processes for the agents that share the run directory, until ctx ends, and on
// SIGTERM or SIGINT. It is for containers: what is started in one ends with it, so that the tunnels of an agent
// which is replaced have to be in another. An agent asks with a line "DEVICE MTU" and is answered with an
// empty line, or with what went wrong. The processes that it started are not ended by it, but by the
// container that ends with it.
func Launch(ctx context.Context, o LauncherOptions) error {
	ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	defer stop()
	if err := os.MkdirAll(o.RunDir, 0o700); err != nil {
		return fmt.Errorf("make the run directory: %w", err)
	}
	l := &launcher{LauncherOptions: o, tunnels: map[string]*Tunnel{}}
	socket, err := listen(filepath.Join(o.RunDir, LauncherSocket), func(conn net.Conn) { l.answer(ctx, conn) })
	if err != nil {
		return err
	}
	defer socket.close()
	o.Log.Info("launcher is ready", "socket", socket.path)
	check := time.NewTicker(socketCheck)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-check.C:
			if err := socket.restore(); err != nil {
				o.Log.Warn("launcher cannot be asked: its socket is gone", "error", err)
			}
		}
	}
}

type launcher struct {
	LauncherOptions
	mu      sync.Mutex // of starting
	tunnels map[string]*Tunnel
}

// answer answers one question and closes the connection.
func (l *launcher) answer(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline.Add(probeTimeout)) // an answer may be late, but nobody is waited for for ever
	answer := ""
	if err := l.launch(ctx, conn); err != nil {
		answer = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	_, _ = fmt.Fprintln(conn, answer) // who does not read it will ask again
}

func (l *launcher) launch(ctx context.Context, question io.Reader) error {
	var device string
	var mtu int
	if _, err := fmt.Fscanf(io.LimitReader(question, questionLimit), "%s %d\n", &device, &mtu); err != nil {
		return fmt.Errorf("read what to start: %w", err)
	}
	if err := checkName(device); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tunnels[device]
	if t == nil {
		t = NewTunnel(TunnelOptions{Executable: l.Executable, Device: device, RunDir: l.RunDir}, l.Log)
		l.tunnels[device] = t
	}
	t.MTU = mtu
	_, err := t.ensure(ctx, t.start)
	return err
}

// ask has the launcher start the process, where one serves the run directory; otherwise it is started here, if it may.
func (t *Tunnel) ask(ctx context.Context) error {
	path := filepath.Join(t.RunDir, LauncherSocket)
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if errors.Is(err, fs.ErrNotExist) && !t.OnlyLauncher {
		return t.start(ctx)
	}
	if err != nil {
		return fmt.Errorf("ask the launcher: %w%s", err, t.remedy(err, path))
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := fmt.Fprintf(conn, "%s %d\n", t.Device, t.MTU); err != nil {
		return fmt.Errorf("ask the launcher: %w", err)
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return fmt.Errorf("ask the launcher: %w", err)
	}
	if answer != "\n" {
		return fmt.Errorf("the launcher says: %s", strings.TrimSpace(answer))
	}
	return nil
}

// remedy is what to do about a socket that nobody serves.
func (t *Tunnel) remedy(err error, path string) string {
	switch {
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED):
		return ""
	case t.OnlyLauncher:
		return "; this waits for it: run `warren launcher` in a container of its own (deploy/tunnels.yaml, or tunnels.enabled=true with Helm), " +
			"or load the kernel's WireGuard (modprobe wireguard)"
	}
	return "; start it again, or remove " + path + " to do without"
}
