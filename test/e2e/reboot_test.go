package e2e

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"warren/internal/discovery/dir"
	"warren/internal/discovery/record"
)

// TestReboot: a node of a cluster in strict mode goes off and comes back, with its disk and without it. The API server that
// it needs runs on the other node.
func TestReboot(t *testing.T) {
	t.Parallel()
	c := up(t, "reboot", "--nodes", "2", "--pods", "1", "--mode", "strict")
	n1, n2 := c.node("n1"), c.node("n2")
	server := netip.AddrPortFrom(n1.Addresses[0], apiPort)
	write(t, filepath.Join(filepath.Dir(c.open().RecordPath("n1")), dir.APIServerFile), record.MarshalAPIServers([]netip.AddrPort{server}))
	serveEcho(t, n1.Namespace, server)
	key := func() string {
		for _, peer := range c.status("n1").Peers {
			if peer.Encrypting && peer.State == "confirmed" {
				return peer.PublicKey
			}
		}
		return ""
	}
	for _, test := range []struct {
		name   string
		args   []string
		newKey bool
	}{
		{name: "with its disk"},
		{name: "without its disk", args: []string{"--lose-disk"}, newKey: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := c.in(t)
			before := key()
			c.must("reboot", append(test.args, "n2")...)
			took := eventually(t, time.Minute, "n2 is back", func() bool {
				now := key()
				return now != "" && (now != before) == test.newKey && len(c.peers("n2")) == 1 && echoes(n2.Namespace, server, time.Second)
			})
			t.Logf("back %v after the machine was there", took)
			if took > backTime {
				t.Errorf("it took %v, more than %v", took, backTime)
			}
			if c.reason("n2", "redirected") == 0 {
				t.Error("no packet took the tunnel")
			}
			c.mustVerify(2 * 4 * 2 * 3)
		})
	}
}
