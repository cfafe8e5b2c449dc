package e2e

import (
	"strings"
	"testing"
)

// TestPath: a lab with a node behind a router is a lab like others: everything arrives encrypted on both sides of the
// router, which is a place, and the node behind can leave and come back.
func TestPath(t *testing.T) {
	t.Parallel()
	for _, cni := range []string{"routes", "vxlan"} {
		t.Run(cni, func(t *testing.T) {
			t.Parallel()
			c := up(t, "path-"+cni, "--pods", "1", "--path-mtu", "n3=1400", "--cni", cni)
			c.mustVerify(allRows)
			if route := c.mustExec("router", "ip", "route", "get", c.node("n3").Addresses[0].String()); !strings.Contains(route, "dev eth1") || !strings.Contains(route, "mtu lock 1400") {
				t.Errorf("the router's route to n3: %s", route)
			}
			c.must("leave", "n3")
			c.mustVerify(2*4*2*3, "--to", "n1,n2", "--from", "n1,n2")
			for _, want := range []string{"n3", "n4"} {
				if name := strings.TrimSpace(c.must("join")); name != want {
					t.Errorf("%s joined, want %s", name, want)
				}
			}
			c.mustVerify(6*4*2*3, "--to", "n3,n4")
		})
	}
}
