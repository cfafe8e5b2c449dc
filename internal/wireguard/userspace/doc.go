// Package userspace owns the tunnel process: WireGuard in user space (golang.zx2c4.com/wireguard) for
// kernels that have none. Run is the process from within, what `warren tunnel` calls; Tunnel is
// the same process seen by the agent, which starts, adopts and stops it.
//
// The process owns a TUN device and serves the WireGuard configuration protocol on a socket where
// wgctrl looks for it. It knows no peers by itself and writes no files. It outlives the agent that
// started it and ends when its TUN device is deleted:
//
//	agent ── start, once ──► warren tunnel ──┬── TUN device warren0
//	  └───── package wireguard ──► socket ───┘    (gone with the process, and the process with it)
//
//	tunnel := userspace.NewTunnel(userspace.TunnelOptions{
//		Executable: executable, Device: "warren0", MTU: 1440, RunDir: "/run/warren",
//	}, log)
//	process, err := tunnel.Ensure(ctx) // running, its device there, its socket answering
//
// In containers, where a process ends with the container that started it, Launch is a process in another one
// that starts tunnels for agents.
package userspace
