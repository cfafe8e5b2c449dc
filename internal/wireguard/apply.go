package wireguard

import (
	"errors"
	"fmt"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"warren/internal/cluster"
)

// What goes into one request, at most. wgctrl sends larger ones to the kernel peer by peer.
const (
	batchPeers = 32
	batchIPs   = 256
)

// apply carries out the steps in order, in as few requests as wgctrl allows. Steps that are
// refused, and steps that fail, are left out and do not keep the others from being carried out.
func (d *Device) apply(steps []step) error {
	if len(steps) == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	own, err := d.ownKey()
	if err == nil {
		var refused error
		steps, refused = admit(steps, own)
		err = errors.Join(refused, d.carryOut(steps))
	}
	if err != nil {
		return fmt.Errorf("change peers of %s: %w", d.name, err)
	}
	return nil
}

// admit separates the steps that must not reach the device.
func admit(steps []step, own cluster.PublicKey) (admitted []step, refused error) {
	for _, s := range steps {
		switch {
		case s.guarded && s.key.IsZero():
			refused = errors.Join(refused, fmt.Errorf("%s: %w", s.what, ErrZeroKey))
		case s.guarded && s.key == own:
			refused = errors.Join(refused, fmt.Errorf("%s: %w", s.what, ErrOwnKey))
		default:
			admitted = append(admitted, s)
		}
	}
	return admitted, refused
}

func (d *Device) carryOut(steps []step) error {
	var failed error
	for _, batch := range batches(steps) {
		err := d.send(batch...)
		if err == nil {
			continue
		}
		if errors.Is(err, ErrNoDevice) {
			return errors.Join(failed, err)
		}
		failed = errors.Join(failed, d.carryOutSingly(batch))
	}
	return failed
}

// carryOutSingly repeats a batch that failed, step by step: a device stops at the first entry it
// does not like, and one bad peer must not keep the others from their changes.
func (d *Device) carryOutSingly(batch []step) error {
	var failed error
	for _, s := range batch {
		if err := d.send(s); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", s.what, err))
		}
	}
	return failed
}

func (d *Device) send(batch ...step) error {
	var peers []wgtypes.PeerConfig
	for _, s := range batch {
		peers = append(peers, s.peers...)
	}
	return d.set(wgtypes.Config{Peers: peers})
}

// batches cuts the steps into runs that fit into one request each.
func batches(steps []step) [][]step {
	var all [][]step
	peers, ips := batchPeers, batchIPs // a full batch, so that the first step opens one
	for _, s := range steps {
		morePeers, moreIPs := s.size()
		if peers+morePeers > batchPeers || ips+moreIPs > batchIPs {
			all = append(all, nil)
			peers, ips = 0, 0
		}
		all[len(all)-1] = append(all[len(all)-1], s)
		peers, ips = peers+morePeers, ips+moreIPs
	}
	return all
}

func (s step) size() (peers, ips int) {
	for _, peer := range s.peers {
		ips += len(peer.AllowedIPs)
	}
	return len(s.peers), ips
}
