package sweep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"warren/internal/lab"
	"warren/internal/lab/proof"
)

// narrowLab builds a lab of two nodes for one test, without encryption and with a router between that forwards 1400 bytes.
func narrowLab(t *testing.T, name string, silent bool) *lab.Lab {
	t.Helper()
	needRoot(t)
	spec := lab.Spec{Name: fmt.Sprintf("%s-%d", name, os.Getpid()), Nodes: lab.NodeNumbers(2), Pods: 1, CNI: lab.CNIRoutes, MTU: 1500,
		Path: &lab.Path{Node: 2, MTU: 1400, Silent: silent}}
	t.Cleanup(func() {
		if err := lab.Down(context.Background(), spec.Name); err != nil {
			t.Error(err)
		}
	})
	l, err := lab.Up(t.Context(), spec, lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// want is a row in short.
type want struct {
	row             string
	df              bool
	delivered, lost string
	told            map[int]string
	untried         bool
}

func short(r Result) want {
	w := want{row: r.Row.String(), df: r.DF, delivered: r.Delivered.String(), lost: r.Lost.String(), untried: len(r.Untried) > 0}
	for _, told := range r.Told {
		if w.told == nil {
			w.told = map[int]string{}
		}
		w.told[told.MTU] = told.Sizes.String()
	}
	return w
}

// TestBlackHole: where nobody is told, every size that does not fit is found out; where everybody is told, none is. Without
// "don't fragment" routers cut IPv4.
func TestBlackHole(t *testing.T) {
	sizes, _ := ParseSizes("68,1396-1404,1500")
	filter := proof.Filter{From: []string{"n1"}, Classes: []string{"pod-pod"}, Families: []string{"ipv4"}}
	tests := []struct {
		name   string
		silent bool
		want   []want
	}{
		{name: "told", want: []want{
			{row: "pod-pod n1 to n2, ipv4 icmp", delivered: "68,1396-1404,1500"},
			{row: "pod-pod n1 to n2, ipv4 icmp", df: true, delivered: "68,1396-1400", told: map[int]string{1400: "1401-1404,1500"}},
			{row: "pod-pod n1 to n2, ipv4 udp", delivered: "68,1396-1404,1500"},
			{row: "pod-pod n1 to n2, ipv4 udp", df: true, delivered: "68,1396-1400", told: map[int]string{1400: "1401-1404,1500"}},
			{row: "pod-pod n1 to n2, ipv4 tcp", delivered: "68,1396-1404,1500"},
		}},
		{name: "silent", silent: true, want: []want{
			{row: "pod-pod n1 to n2, ipv4 icmp", delivered: "68,1396-1404,1500"},
			{row: "pod-pod n1 to n2, ipv4 icmp", df: true, delivered: "68,1396-1400", lost: "1401-1404,1500"},
			{row: "pod-pod n1 to n2, ipv4 udp", delivered: "68,1396-1404,1500"},
			{row: "pod-pod n1 to n2, ipv4 udp", df: true, delivered: "68,1396-1400", lost: "1401-1404,1500"},
			// 52 bytes of headers: 1348 fit, 1396 do not.
			{row: "pod-pod n1 to n2, ipv4 tcp", delivered: "68", lost: "1396-1398", untried: true},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := narrowLab(t, "hole-"+test.name, test.silent)
			report, err := Run(t.Context(), l, Options{Filter: filter, Sizes: sizes})
			if err != nil {
				t.Fatal(err)
			}
			var got []want
			for _, row := range report.Rows {
				got = append(got, short(row))
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if report.OK == test.silent {
				t.Errorf("ok %v", report.OK)
			}
		})
	}
}

// TestToldBefore: what the kernel learnt of the path by the socket of another row is told to this one, too, which was opened
// before: nothing of its own leaves the node any more that an ICMP error could be about.
func TestToldBefore(t *testing.T) {
	l := narrowLab(t, "told-before", false)
	rows := proof.Rows(l.Topology, proof.Filter{From: []string{"n1"}, Classes: []string{"pod-pod"}, Protocols: []string{"icmp", "udp"}})
	servers, err := startReflectors(rows)
	if err != nil {
		t.Fatal(err)
	}
	defer servers.Close()
	for _, family := range []string{"ipv4", "ipv6"} {
		t.Run(family, func(t *testing.T) {
			open := map[string]*datagrams{}
			for _, row := range rows {
				if row.Family == family {
					open[row.Protocol] = openDatagrams(t, row, servers)
				}
			}
			for _, protocol := range []string{"udp", "icmp"} {
				d := open[protocol]
				d.run(t.Context(), Sizes{1399, 1401, 1500})
				if diff := cmp.Diff(map[int]int{1401: 1400, 1500: 1400}, d.outcome.told); diff != "" {
					t.Errorf("%s, told (-want +got):\n%s\nthe last error: %v", protocol, diff, d.outcome.failure)
				}
			}
		})
	}
}

// openDatagrams is the socket of a row with "don't fragment", until the test ends.
func openDatagrams(t *testing.T, row proof.Row, servers *reflectors) *datagrams {
	t.Helper()
	_, to := row.Ends()
	d, err := dialDatagrams(row, true, servers.ports[to.Address], make([]byte, 1<<16))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.socket.Close() })
	return d
}

// TestNothing: a filter without rows is an error, never a success.
func TestNothing(t *testing.T) {
	l := &lab.Lab{Topology: lab.Spec{Name: "x", Nodes: []int{1}}.Topology()}
	if report, err := Run(t.Context(), l, Options{}); !errors.Is(err, ErrNothing) || report.OK {
		t.Errorf("Run = %+v, %v, want ErrNothing", report, err)
	}
}

// needRoot skips where namespaces cannot be made, and fails where they must be.
func needRoot(t *testing.T) {
	t.Helper()
	if unix.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("this test makes network namespaces and needs root")
	}
	t.Skip("needs root: makes network namespaces")
}
