package cli

import (
	"context"
	"testing"
)

func TestPauseEndsWhenTold(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error)
	cmd := newPause()
	cmd.SetArgs(nil)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	select {
	case err := <-ended:
		t.Fatalf("it ended by itself: %v", err)
	default:
	}
	end()
	if err := <-ended; err != nil {
		t.Errorf("told to end: %v", err)
	}
}
