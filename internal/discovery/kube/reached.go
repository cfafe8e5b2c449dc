package kube

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"warren/internal/discovery"
)

const (
	// lookAgain is how long the addresses of the API server's name count, and lookSoon the pause while it has none.
	lookAgain, lookSoon = time.Minute, 5 * time.Second
	// lookPatience is how long an answer may take.
	lookPatience = 2 * time.Second
)

// reach finds where this agent reaches the API server. The EndpointSlices need not say so: it may be the address of a
// load balancer, or of a server that they do not name any more.
func (k *Kube) reach(ctx context.Context) []netip.AddrPort {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	return discovery.Reach(ctx, k.troubles.server)
}

// follow tells what look finds, at first and whenever it is something else, until ctx ends. To find nothing is no news:
// who cannot be asked for an address may still be there.
func follow(ctx context.Context, look func(context.Context) []netip.AddrPort, found chan<- []netip.AddrPort) {
	var told []netip.AddrPort
	for {
		now, pause := look(ctx), lookAgain
		if len(now) == 0 {
			now, pause = told, lookSoon
		}
		if !slices.Equal(now, told) {
			select {
			case <-ctx.Done():
				return
			case found <- now:
				told = now
			}
		}
		if !discovery.Sleep(ctx, pause) {
			return
		}
	}
}
