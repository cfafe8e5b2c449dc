package e2e

import (
	"bytes"
	"net/netip"
	"os"
	"testing"
	"time"

	"warren/internal/cluster"
	"warren/internal/lab/wire"
)

// TestEndpointMoves: a node gets another address, and its record says so while its agent is away and answers nobody. The
// others encrypt on, to the new address, and lose nothing.
func TestEndpointMoves(t *testing.T) {
	t.Parallel()
	c := up(t, "endpoint", "--nodes", "2", "--pods", "1")
	old := c.node("n2").Addresses[0]
	moved := netip.MustParseAddr("10.10.0.222")
	c.must("agent", "kill", "n2")
	c.mustExec("n2", "ip", "address", "add", moved.String()+"/24", "dev", "eth0")
	record := c.open().RecordPath("n2")
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	write(t, record, bytes.Replace(text, []byte(old.String()), []byte(moved.String()+", "+old.String()), 1))
	w := watch(t, c)
	w.mayBeClear = func(frame wire.Frame) bool { // WireGuard's own, to an address that the capture does not know
		return frame.Flow.Destination == netip.AddrPortFrom(moved, cluster.DefaultPort) || frame.Flow.Source == netip.AddrPortFrom(moved, cluster.DefaultPort)
	}
	reached := func(addr netip.Addr) func() bool {
		return func() bool { return netip.MustParseAddrPort(c.status("n1").Peers[0].Endpoint).Addr() == addr }
	}
	write(t, record, bytes.Replace(text, []byte(old.String()), []byte(moved.String()+", "+old.String()), 1))
	eventually(t, 10*time.Second, "n1 reaches n2 at its new address", reached(moved))
	time.Sleep(2 * time.Second) // traffic goes on, and nobody answers probes
	c.must("agent", "start", "n2")
	eventually(t, 10*time.Second, "n1 reaches n2 where its agent says", reached(old))
	w.finish(t)
}
