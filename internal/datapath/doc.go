// Package datapath owns the eBPF programs: it loads, attaches, configures and feeds them, and reads
// what they count. It decides nothing: which devices, which entries and which mode is told by its
// caller, and what a packet meets is in package model (in Go) and in bpf/ (in C).
//
// Everything lives in the kernel and is pinned below one folder, so that it works on without the process
// that made it. Open adopts what is there, Close lets go of it, Cleanup removes it.
//
//	d, err := datapath.Open(datapath.Options{Dir: "/sys/fs/bpf/warren", Logger: logger})
//	defer d.Close()
//	err = d.Configure(config)                       // marks, port, devices, mode
//	failed, err := d.Apply(upserts, deletes)        // whose addresses are whose
//	err = d.SetServers(servers)                     // what strict mode lets pass before peers are confirmed
//	err = d.SetExemptions(exemptions)               // what stays in clear
//	err = d.Sync(ctx, underlays, tunnels)           // attachments exactly so; again to heal drift
//
// Below the folder:
//
//	maps-v2/ipcache_exact …      the maps of bpf/maps.h in layout 2
//	links/to_netdev-2 …          TCX links, by program and index of the device
//
// What an older layout left is taken over without a gap; see Migrating.
//
// Arrivals and FirstFragment are for whoever measures the ways to the peers.
//
// Configure, Sync, Apply and the Set functions are called by one goroutine; everything else may run beside them.
//
// The package needs root (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON) and runs in the network namespace of
// the devices.
package datapath

//go:generate ../../scripts/generate-bpf.sh
