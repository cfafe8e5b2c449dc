package userspace

import "golang.zx2c4.com/wireguard/conn"

// newBind returns the UDP sockets of the device. They are WireGuard's own: batched, with
// segmentation offload, marked by SO_MARK.
func newBind() conn.Bind { return conn.NewDefaultBind() }
