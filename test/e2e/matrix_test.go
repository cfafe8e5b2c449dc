package e2e

import (
	"strings"
	"testing"
)

// allRows are those of three nodes: 6 ordered pairs × 4 classes × 2 families × 3 protocols.
const allRows = 6 * 4 * 2 * 3

// TestMatrix: nothing is in clear and everything arrives, however pods reach each other, however the
// programs are attached, wherever decrypted packets appear.
func TestMatrix(t *testing.T) {
	for _, cni := range []string{"routes", "vxlan"} {
		for _, attach := range []string{"tcx", "clsact"} {
			for _, ingress := range []string{"underlay", "device"} {
				t.Run(strings.Join([]string{cni, attach, ingress}, "-"), func(t *testing.T) {
					t.Parallel()
					c := up(t, "matrix-"+cni[:1]+attach[:1]+ingress[:1], "--cni", cni, "--attach", attach, "--ingress", ingress)
					c.mustVerify(allRows)
					for _, underlay := range c.status("n1").Underlay {
						if underlay.Attach != attach {
							t.Errorf("attached to %s by %q, want %q", underlay.Name, underlay.Attach, attach)
						}
					}
				})
			}
		}
	}
}

// TestSizes: payloads that need fragments inside, outside or both.
func TestSizes(t *testing.T) {
	t.Parallel()
	c := up(t, "sizes", "--nodes", "2", "--pods", "1")
	for _, size := range []string{"1372", "1432", "1460", "1472", "4000", "60000"} {
		c.mustVerify(2*4*2*3, "--size", size)
	}
}

// TestVerifyFails: in a lab without encryption every row is found out, and the exit code says so.
func TestVerifyFails(t *testing.T) {
	t.Parallel()
	c := up(t, "clear", "--no-encryption")
	report := c.verify()
	if report.OK || report.Void != "" || report.Control.ClearFrames == 0 || len(report.Rows) != allRows {
		t.Errorf("ok %v, void %q, control %+v, %d rows; want a failure", report.OK, report.Void, report.Control, len(report.Rows))
	}
	for _, row := range report.Rows {
		if row.OK || !row.Delivered || row.MarkerFrames == 0 || row.ClearFrames == 0 || row.WireGuardFrames != 0 {
			t.Errorf("%+v: want it delivered and found out", row)
		}
	}
	text := c.run("verify", "--class", "pod-pod")
	if text.code != 1 || !strings.Contains(text.stdout, "FAILED: 0 of 36 rows in order, 36 delivered") || !strings.Contains(text.stdout, "its payload could be read") {
		t.Errorf("exit code %d, text:\n%s", text.code, text.stdout)
	}
}
