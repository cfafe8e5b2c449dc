package agent

import (
	"context"
	"errors"
	"fmt"

	"warren/internal/config"
	"warren/internal/netdev"
	"warren/internal/plan"
	"warren/internal/wireguard/userspace"
)

// tunnelDevice is the WireGuard device with whatever makes it: the kernel, or a tunnel process.
type tunnelDevice struct {
	engine  config.Engine
	links   *netdev.Netdev
	process *userspace.Tunnel
}

// ensure makes sure that the device exists, is up and has that MTU. What is there is adopted.
func (d *tunnelDevice) ensure(ctx context.Context, want plan.Device) (netdev.Link, error) {
	if d.engine != config.EngineUserspace {
		link, err := d.links.EnsureWireGuard(want.Name, want.MTU)
		if err == nil || d.engine == config.EngineKernel || !fallsBack(err) {
			return link, err
		}
	}
	d.process.MTU = want.MTU
	if _, err := d.process.Ensure(ctx); err != nil {
		return netdev.Link{}, err
	}
	return d.links.Prepare(want.Name, want.MTU)
}

// fallsBack: without kernel WireGuard, or when a tunnel process already has the device, it is
// userspace WireGuard's.
func fallsBack(err error) bool {
	return errors.Is(err, netdev.ErrUnsupported) || errors.Is(err, netdev.ErrOtherKind)
}

// remove deletes the device; a tunnel process ends with it.
func (d *tunnelDevice) remove(ctx context.Context, name string) error {
	if err := d.links.Delete(name); err != nil && !errors.Is(err, netdev.ErrOtherKind) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return userspace.Stop(ctx, name)
}
