package discovery

import (
	"context"
	"time"
)

// Sleep waits that long and reports whether it was not woken by the end of ctx.
func Sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
