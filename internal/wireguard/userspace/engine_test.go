package userspace

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCheckName(t *testing.T) {
	tests := map[string]bool{
		"warren0": true, "a": true, "fifteen-bytes-0": true, "eth0.1": true,
		"": false, "sixteen-bytes-00": false, ".": false, "..": false, "a/b": false, "a b": false, "a:b": false, "wg%d": false, "a\n": false,
	}
	for name, want := range tests {
		if err := checkName(name); (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestComplaintsAreBounded(t *testing.T) {
	var text strings.Builder
	now := time.Unix(0, 0)
	logger := engineLogger(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: withoutTime})), func() time.Time { return now })
	for i := range 1000 {
		logger.Errorf("cannot send %d", i)
	}
	logger.Errorf("another kind")
	logger.Verbosef("not asked for")
	now = now.Add(complaintsWindow)
	logger.Errorf("cannot send %d", 1000)
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	want := []string{
		`level=WARN msg="WireGuard engine complains" text="cannot send 9" suppressed=0`,
		`level=WARN msg="WireGuard engine complains" text="another kind" suppressed=0`,
		`level=WARN msg="WireGuard engine complains" text="cannot send 1000" suppressed=990`,
	}
	if len(lines) != complaintsBurst+2 {
		t.Errorf("%d lines, want %d", len(lines), complaintsBurst+2)
	}
	if diff := cmp.Diff(want, lines[max(0, len(lines)-3):]); diff != "" {
		t.Errorf("the last lines (-want +got):\n%s", diff)
	}
}

func withoutTime(_ []string, attr slog.Attr) slog.Attr {
	if attr.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return attr
}

func TestKeysAreHidden(t *testing.T) {
	var text strings.Builder
	logger := engineLogger(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})), time.Now)
	key := strings.Repeat("0123456789abcDEF", 4)
	// What the engine says when a request goes wrong just before the key, or in its line.
	logger.Errorf("invalid UAPI operation: %v", "private_key="+key+"\n")
	logger.Verbosef("failed to parse line %q", "private_key "+key)
	if strings.Contains(text.String(), key) || strings.Count(text.String(), "(hidden)") != 2 {
		t.Errorf("logged: %s", text.String())
	}
}

func echo(conn net.Conn) {
	defer conn.Close()
	_, _ = io.Copy(conn, conn)
}

func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "folder", "warren0.sock")
	s, err := listen(path, echo)
	if err != nil {
		t.Fatal(err)
	}
	conn := ask(t, path)
	if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	if _, err := listen(path, echo); err == nil || !strings.Contains(err.Error(), "serves it already") {
		t.Errorf("a second listen: %v, want a refusal", err)
	}
	s.close()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there after close: %v", err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("an open connection after close: %v, want %v", err, io.EOF)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 0 {
		t.Errorf("the folder has %v (%v)", entries, err)
	}
}

// ask makes a connection and checks that it is served.
func ask(t *testing.T, path string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "hello\n" {
		t.Fatalf("answer %q, %v", line, err)
	}
	return conn
}

func TestSocketRestore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "warren0.sock")
	s, err := listen(path, echo)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	old := ask(t, path)
	before, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.restore(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("a socket that is there was replaced (%v)", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := s.restore(); err != nil {
		t.Fatal(err)
	}
	ask(t, path)
	if _, err := old.Write([]byte("still\n")); err != nil {
		t.Errorf("the connection from before: %v", err)
	}
}

// TestSocketTakenOver: what another process has put in its place is not removed.
func TestSocketTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "warren0.sock")
	s, err := listen(path, echo)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other, err := listen(path, echo)
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	if err := s.restore(); err == nil {
		t.Error("restore took the other's place")
	}
	s.close()
	ask(t, path)
}
