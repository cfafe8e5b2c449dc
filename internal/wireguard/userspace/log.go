package userspace

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// What of the engine's complaints is written: some come with every packet that cannot be sent, and
// the log lies in memory (/run).
const (
	complaintsBurst  = 10
	complaintsWindow = time.Hour
)

// secret matches a key as the configuration protocol spells it. The engine quotes a line that it
// does not understand, and after a bad request that may be the one with the private key.
var secret = regexp.MustCompile(`[0-9a-fA-F]{64}`)

// engineLogger gives the engine's formatted lines to log: its errors as warnings (it goes on, and
// tries again), the rest for debugging.
func engineLogger(log *slog.Logger, now func() time.Time) *device.Logger {
	complaints := &limiter{now: now}
	logger := &device.Logger{Verbosef: device.DiscardLogf}
	logger.Errorf = func(format string, args ...any) {
		if write, suppressed := complaints.allow(format); write {
			log.Warn("WireGuard engine complains", "text", redact(format, args), "suppressed", suppressed)
		}
	}
	if log.Enabled(context.Background(), slog.LevelDebug) {
		logger.Verbosef = func(format string, args ...any) {
			log.Debug("WireGuard engine", "text", redact(format, args))
		}
	}
	return logger
}

func redact(format string, args []any) string {
	return secret.ReplaceAllString(fmt.Sprintf(format, args...), "(hidden)")
}

// limiter lets a burst of each kind of complaint through in each window. A kind is a format string,
// of which the engine has some forty.
type limiter struct {
	now func() time.Time

	mu    sync.Mutex
	kinds map[string]*window
}

type window struct {
	begun      time.Time
	written    int
	suppressed int
}

// allow reports whether a complaint is written, and how many of its kind were not since the last
// one that was.
func (l *limiter) allow(kind string) (write bool, suppressed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	w, seen := l.kinds[kind]
	switch {
	case !seen:
		if l.kinds == nil {
			l.kinds = map[string]*window{}
		}
		w = &window{begun: now}
		l.kinds[kind] = w
	case now.Sub(w.begun) >= complaintsWindow:
		w.begun, w.written = now, 0
	}
	if w.written == complaintsBurst {
		w.suppressed++
		return false, 0
	}
	w.written++
	suppressed, w.suppressed = w.suppressed, 0
	return true, suppressed
}
