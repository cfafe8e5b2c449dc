// Package wireguard owns the WireGuard device of this node: its key, port, mark and peers, and the
// file that keeps the private key. It is the only importer of wgctrl, and speaks to the kernel's
// WireGuard and to the userspace tunnel (package userspace) alike; only Actual.Engine tells them apart.
//
// It must not create, delete or bring up links (package netdev does), must not decide who is a peer
// (package plan does), and never replaces all peers or all allowed IPs: that is not atomic, and
// packets die meanwhile.
//
//	key, _, err := wireguard.LoadOrCreateKey("/var/lib/warren/private.key")
//	device, err := wireguard.Open("warren0", log)
//	err = device.Configure(plan.Device{Name: "warren0", Port: 51880, Mark: 0x10}, key)
//	err = device.SetPeers(ops.SetPeers)
//	err = device.GiveIPs(ops.AllowedIPs)  // then the datapath, then:
//	err = device.OrphanIPs(ops.Orphans)
//	err = device.RemovePeers(ops.RemovePeers)
//	actual, err := device.Read()          // ErrNoDevice: somebody deleted it
package wireguard
