package main

import (
	"context"
	"net/netip"
	"time"

	"warren/internal/lab"
)

// setting is a way in which traffic crosses the wire of the bed.
type setting interface {
	name() string
	// device is what all traffic of the setting goes through on a node; empty for none.
	device() string
	// hostAddress is where a node is reached.
	hostAddress(n lab.Node) netip.Addr
	enter(ctx context.Context, b *bed) error
	leave(ctx context.Context, b *bed) error
}

// inClear is the lab as it is without Warren.
type inClear struct{}

func (inClear) name() string                      { return "clear" }
func (inClear) device() string                    { return "" }
func (inClear) hostAddress(n lab.Node) netip.Addr { return n.Addresses[0] }
func (inClear) enter(context.Context, *bed) error { return nil }
func (inClear) leave(context.Context, *bed) error { return nil }

// warren is the lab with its agents, as a user has them.
type warren struct{ binary string }

func (warren) name() string                      { return "Warren" }
func (warren) device() string                    { return "warren0" }
func (warren) hostAddress(n lab.Node) netip.Addr { return n.Addresses[0] }

func (w warren) enter(ctx context.Context, b *bed) error {
	b.Spec.Agent.Binary = w.binary
	return b.StartAgents(ctx, time.Minute, "n1", "n2")
}

func (w warren) leave(ctx context.Context, b *bed) error {
	for _, node := range []string{"n1", "n2"} {
		if err := b.StopAgent(ctx, node); err != nil {
			return err
		}
	}
	for _, node := range []string{"n1", "n2"} {
		if _, err := b.output(ctx, node, w.binary, "cleanup"); err != nil {
			return err
		}
	}
	return nil
}
