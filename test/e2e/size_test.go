package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"warren/internal/lab/sweep"
)

// sweepRows are those of two nodes: 2 ordered pairs × 4 classes × 2 families × (UDP and ICMP with and without "don't
// fragment", and TCP).
const sweepRows = 2 * 4 * 2 * 5

// sweep sends packets of all sizes and returns the report whatever it says.
func (c *testLab) sweep(args ...string) sweep.Report {
	c.t.Helper()
	r := c.run("sweep", append([]string{"-o", "json"}, args...)...)
	var report sweep.Report
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		c.t.Fatalf("warren lab sweep: %v\n%s%s", err, r.stdout, r.stderr)
	}
	if report.OK != (r.code == 0) {
		c.t.Errorf("warren lab sweep: ok %v, exit code %d", report.OK, r.code)
	}
	return report
}

// mustSweep expects every size of every row to be delivered, or refused with another that is delivered.
func (c *testLab) mustSweep(rows int, args ...string) sweep.Report {
	c.t.Helper()
	report := c.sweep(args...)
	if len(report.Rows) != rows || len(report.Sizes) == 0 {
		c.t.Errorf("%d rows of %d sizes, want %d rows", len(report.Rows), len(report.Sizes), rows)
	}
	for _, row := range report.Rows {
		if !row.OK {
			c.t.Errorf("%s, DF %v: %s", row.Row, row.DF, row.Problem)
		}
		if !row.DF && len(row.Told) > 0 {
			c.t.Errorf("%s: %d bytes refused though they may be fragmented", row.Row, row.Told[0].Sizes[0])
		}
	}
	return report
}

// fewer sizes than the default, for labs in which nothing special happens between these.
const fewer = "68-76,1280-1510,1601-65535/8401,65535"

// TestSweep: no size is lost silently, whatever the wire and the path carry.
func TestSweep(t *testing.T) {
	for _, test := range []struct {
		name, sizes string
		args        []string
		// tunnel is the MTU of warren0.
		tunnel int
	}{
		{name: "1500", sizes: fewer, tunnel: 1440},
		{name: "1400", sizes: fewer, args: []string{"--mtu", "1400"}, tunnel: 1328},
		{name: "jumbo", sizes: fewer + ",8880-9040", args: []string{"--mtu", "9000"}, tunnel: 8928},
		{name: "vxlan", sizes: fewer, args: []string{"--cni", "vxlan"}, tunnel: 1440},
		{name: "jumbo-vxlan", sizes: fewer + ",8880-9040", args: []string{"--mtu", "9000", "--cni", "vxlan"}, tunnel: 8928},
		{name: "narrow", sizes: fewer, args: []string{"--path-mtu", "n2=1400"}, tunnel: 1440},
		{name: "narrow-vxlan", sizes: fewer, args: []string{"--path-mtu", "n2=1400", "--cni", "vxlan"}, tunnel: 1440},
		{name: "silent", sizes: fewer, args: []string{"--path-mtu", "n2=1400", "--path-icmp", "block"}, tunnel: 1440},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := up(t, "sweep-"+test.name, append([]string{"--nodes", "2", "--pods", "1"}, test.args...)...)
			if mtu := c.status("n1").Device.MTU; mtu != test.tunnel {
				t.Errorf("the tunnel of n1 has MTU %d, want %d", mtu, test.tunnel)
			}
			c.mustSweep(sweepRows, "--sizes", test.sizes)
			c.mustVerify(2*4*2*3, "--size", "4000")
		})
	}
}

// TestSweepEverySize: all that 'warren lab sweep' sends unless it is told otherwise, one by one up to 1600.
func TestSweepEverySize(t *testing.T) {
	t.Parallel()
	c := up(t, "sweep-all", "--nodes", "2", "--pods", "1")
	report := c.mustSweep(sweepRows/2, "--from", "n1")
	if want, _ := sweep.ParseSizes(sweep.DefaultSizes); report.Sizes.String() != want.String() || len(want) < 1533 {
		t.Errorf("sizes %s, want %s", report.Sizes, want)
	}
}

// TestSweepFails: without encryption nobody protects the nodes from a silent router, and the sweep says so.
func TestSweepFails(t *testing.T) {
	t.Parallel()
	c := up(t, "sweep-fails", "--nodes", "2", "--pods", "1", "--no-encryption", "--path-mtu", "n2=1400", "--path-icmp", "block")
	args := []string{"--sizes", "1390-1410", "--class", "host-host", "--from", "n1", "--family", "ipv4", "--protocol", "udp"}
	report := c.sweep(args...)
	if report.OK || len(report.Rows) != 2 {
		t.Fatalf("ok %v, %d rows, want a failure in one of two", report.OK, len(report.Rows))
	}
	if free, df := report.Rows[0], report.Rows[1]; !free.OK || df.OK || df.Lost.String() != "1401-1410" {
		t.Errorf("DF no: %+v, DF yes: %+v, want the second to lose 1401-1410", free, df)
	}
	text := c.run("sweep", args...)
	if text.code != 1 || !strings.Contains(text.stdout, "host-host n1 to n2, ipv4 udp, DF yes: lost 1401-1410, and nobody was told") {
		t.Errorf("exit code %d, text:\n%s", text.code, text.stdout)
	}
}

// TestPodsAreTold: pods that set "don't fragment" are told what the tunnel carries whole; the nodes themselves never are,
// since what they remember of a path holds for the tunnel's packets too.
func TestPodsAreTold(t *testing.T) {
	t.Parallel()
	c := up(t, "told", "--nodes", "2", "--pods", "1")
	report := c.mustSweep(2*4*2, "--sizes", "1400-1500", "--protocol", "udp", "--df", "yes")
	for _, row := range report.Rows {
		fromPod := strings.HasPrefix(row.Class, "pod-")
		if told := len(row.Told) > 0; told != fromPod {
			t.Errorf("%s: told %v, want that of pods only", row.Row, row.Told)
		}
		if fromPod && (len(row.Told) != 1 || row.Told[0].MTU != 1440 && row.Told[0].MTU != 1408) {
			t.Errorf("%s: told %v, want the tunnel's size", row.Row, row.Told)
		}
	}
}

// TestLargeDatagramIsCutOnce: the tunnel process makes the fragments of a large datagram fit, and what is encrypted is not cut
// again: the receiver would count those fragments between the others, and give the datagram up when it is slow (recut in
// package userspace).
func TestLargeDatagramIsCutOnce(t *testing.T) {
	t.Parallel()
	needTool(t, "nstat")
	c := up(t, "cut-once", "--nodes", "2", "--pods", "1")
	if c.status("n1").Device.Engine == "kernel" {
		t.Skip("kernel WireGuard cuts what is encrypted")
	}
	before := c.datagramsCut("n1")
	c.mustSweep(1, "--sizes", "65535", "--class", "host-host", "--from", "n1", "--family", "ipv4", "--protocol", "udp", "--df", "no")
	const tries = 6 // of a sweep; cut twice, each were 46
	if cut := c.datagramsCut("n1") - before; cut < 1 || cut > tries {
		t.Errorf("n1 cut %d packets for one datagram, want 1 for each time that it was sent", cut)
	}
}

// datagramsCut is how many IPv4 packets a node has sent in fragments.
func (c *testLab) datagramsCut(node string) int {
	c.t.Helper()
	text := c.mustExec(node, "nstat", "-asz", "IpFragOKs")
	var count int
	if _, err := fmt.Sscanf(text[strings.Index(text, "IpFragOKs"):], "IpFragOKs %d", &count); err != nil {
		c.t.Fatalf("read %q: %v", text, err)
	}
	return count
}

const (
	// pathRounds alternate between the labs, pathSize is what one transfer carries.
	pathRounds = 5
	pathSize   = 8 << 20
	// pathSpeed is the least share of the speed without a router. Smaller packets cost some of it, and on a busy machine
	// others take their part of either; what a path must not do is lose every large packet, which is under 0.001.
	pathSpeed = 0.3
)

// TestBulkOverPath: TCP over a narrow path is about as fast as without it, whether the router tells or not.
func TestBulkOverPath(t *testing.T) {
	labs := map[string]*testLab{
		"wide":   up(t, "path-wide", "--nodes", "2", "--pods", "1"),
		"narrow": up(t, "path-narrow", "--nodes", "2", "--pods", "1", "--path-mtu", "n2=1400"),
		"silent": up(t, "path-silent", "--nodes", "2", "--pods", "1", "--path-mtu", "n2=1400", "--path-icmp", "block"),
	}
	connections := map[string][]*bulk{}
	for name, c := range labs {
		for _, ends := range pairs(c.node("n1"), c.node("n2")) {
			b := startBulk(t, ends[0], ends[1])
			b.send(t, 1<<20) // find its pace
			connections[name] = append(connections[name], b)
		}
	}
	for i, wide := range connections["wide"] {
		took := map[string][]time.Duration{}
		for range pathRounds {
			for name := range labs {
				duration, _ := connections[name][i].send(t, pathSize)
				took[name] = append(took[name], duration)
			}
		}
		for _, name := range []string{"narrow", "silent"} {
			speed := median(took["wide"]).Seconds() / median(took[name]).Seconds()
			t.Logf("%s, %s: %.2f of the speed without a router, segments of %d bytes", wide.name, name, speed, connections[name][i].info(t).Snd_mss)
			if speed < pathSpeed {
				t.Errorf("%s, %s: %.2f of the speed without a router, want at least %.1f", wide.name, name, speed, pathSpeed)
			}
		}
	}
}

func median(all []time.Duration) time.Duration { return slices.Sorted(slices.Values(all))[len(all)/2] }
