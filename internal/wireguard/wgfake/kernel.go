// Package wgfake is WireGuard devices in memory, for the tests of what drives them. They obey the
// kernel's rules: an allowed IP has one owner, a device ignores a peer with its own key, to remove a
// peer that is not there is no error. They encrypt nothing. The contract in package wgtest holds
// for them as for real ones.
//
// One rule is stricter: to replace all peers, or all allowed IPs of a peer, is an error.
//
//	kernel := wgfake.New()
//	kernel.Add("warren0")
//	device, err := wireguard.OpenWith("warren0", kernel.Dial, log)
package wgfake

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"warren/internal/cluster"
	"warren/internal/wireguard"
)

// Kernel has WireGuard devices by name. It is safe for concurrent use.
type Kernel struct {
	mu      sync.Mutex
	devices map[string]*device
	fault   error
}

type device struct {
	private wgtypes.Key
	port    int
	mark    int
	peers   map[wgtypes.Key]*wgtypes.Peer // without AllowedIPs
	owners  map[netip.Prefix]wgtypes.Key
}

// New returns a kernel without devices.
func New() *Kernel { return &Kernel{devices: map[string]*device{}} }

// Dial returns a client, for wireguard.OpenWith.
func (k *Kernel) Dial() (wireguard.Client, error) { return client{k}, nil }

// Add makes a device, as `ip link add NAME type wireguard` does. One that is there stays.
func (k *Kernel) Add(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.devices[name] == nil {
		k.devices[name] = &device{peers: map[wgtypes.Key]*wgtypes.Peer{}, owners: map[netip.Prefix]wgtypes.Key{}}
	}
}

// Delete removes a device, as `ip link delete NAME` does.
func (k *Kernel) Delete(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.devices, name)
}

// Fail makes every request fail with err from now on; nil ends that.
func (k *Kernel) Fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fault = err
}

// Roam moves a peer to another endpoint, as an authenticated packet from there does.
func (k *Kernel) Roam(name string, key cluster.PublicKey, endpoint netip.AddrPort) {
	k.peer(name, key, func(peer *wgtypes.Peer) { peer.Endpoint = net.UDPAddrFromAddrPort(endpoint) })
}

// Handshake lets a peer have completed a handshake at that time.
func (k *Kernel) Handshake(name string, key cluster.PublicKey, at time.Time) {
	k.peer(name, key, func(peer *wgtypes.Peer) { peer.LastHandshakeTime = at })
}

// Transfer adds to the bytes received from and sent to a peer.
func (k *Kernel) Transfer(name string, key cluster.PublicKey, rx, tx uint64) {
	k.peer(name, key, func(peer *wgtypes.Peer) {
		peer.ReceiveBytes += int64(rx)
		peer.TransmitBytes += int64(tx)
	})
}

// peer panics when there is no such peer: the test is wrong.
func (k *Kernel) peer(name string, key cluster.PublicKey, change func(*wgtypes.Peer)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.devices[name]
	if d == nil || d.peers[wgtypes.Key(key)] == nil {
		panic(fmt.Sprintf("wgfake: %s has no peer %s", name, key.Short()))
	}
	change(d.peers[wgtypes.Key(key)])
}

type client struct{ kernel *Kernel }

func (c client) Close() error { return nil }

func (c client) Device(name string) (*wgtypes.Device, error) {
	c.kernel.mu.Lock()
	defer c.kernel.mu.Unlock()
	d, err := c.kernel.find(name)
	if err != nil {
		return nil, err
	}
	return d.read(name), nil
}

func (c client) ConfigureDevice(name string, config wgtypes.Config) error {
	c.kernel.mu.Lock()
	defer c.kernel.mu.Unlock()
	d, err := c.kernel.find(name)
	if err != nil {
		return err
	}
	return d.configure(config)
}

func (k *Kernel) find(name string) (*device, error) {
	if k.fault != nil {
		return nil, k.fault
	}
	if k.devices[name] == nil {
		return nil, fs.ErrNotExist
	}
	return k.devices[name], nil
}

func (d *device) read(name string) *wgtypes.Device {
	all := &wgtypes.Device{
		Name: name, Type: wgtypes.LinuxKernel,
		PrivateKey: d.private, PublicKey: d.private.PublicKey(),
		ListenPort: d.port, FirewallMark: d.mark,
	}
	for key, peer := range d.peers {
		shown := *peer
		for prefix, owner := range d.owners {
			if owner == key {
				shown.AllowedIPs = append(shown.AllowedIPs, networkOf(prefix))
			}
		}
		all.Peers = append(all.Peers, shown)
	}
	return all
}

// configure follows the order of wg_set_device in the kernel's drivers/net/wireguard/netlink.c.
func (d *device) configure(config wgtypes.Config) error {
	if config.ReplacePeers {
		return errors.New("wgfake: all peers would be replaced: packets die meanwhile")
	}
	if config.FirewallMark != nil {
		d.mark = *config.FirewallMark
	}
	if config.ListenPort != nil {
		d.port = *config.ListenPort
	}
	if config.PrivateKey != nil {
		d.private = *config.PrivateKey
		d.remove(d.private.PublicKey())
	}
	for _, peer := range config.Peers {
		if err := d.setPeer(peer); err != nil {
			return err
		}
	}
	return nil
}

// setPeer follows set_peer there.
func (d *device) setPeer(config wgtypes.PeerConfig) error {
	if config.ReplaceAllowedIPs {
		return errors.New("wgfake: all allowed IPs of a peer would be replaced: packets die meanwhile")
	}
	peer := d.peers[config.PublicKey]
	switch {
	case config.Remove:
		d.remove(config.PublicKey)
		return nil
	case peer == nil && (config.UpdateOnly || config.PublicKey == d.private.PublicKey()):
		return nil
	case peer == nil:
		peer = &wgtypes.Peer{PublicKey: config.PublicKey, ProtocolVersion: 1}
		d.peers[config.PublicKey] = peer
	}
	if config.Endpoint != nil {
		peer.Endpoint = config.Endpoint
	}
	if config.PersistentKeepaliveInterval != nil {
		peer.PersistentKeepaliveInterval = *config.PersistentKeepaliveInterval
	}
	for _, network := range config.AllowedIPs {
		d.owners[prefixOf(network)] = config.PublicKey
	}
	return nil
}

func (d *device) remove(key wgtypes.Key) {
	delete(d.peers, key)
	for prefix, owner := range d.owners {
		if owner == key {
			delete(d.owners, prefix)
		}
	}
}

func prefixOf(network net.IPNet) netip.Prefix {
	addr, _ := netip.AddrFromSlice(network.IP)
	bits, _ := network.Mask.Size()
	return cluster.CanonicalPrefix(netip.PrefixFrom(addr, bits))
}

func networkOf(prefix netip.Prefix) net.IPNet {
	return net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
