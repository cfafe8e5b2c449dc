package proof

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"warren/internal/lab"
)

// clearLab builds a lab without encryption for one test.
func clearLab(t *testing.T, name string, cni lab.CNI) *lab.Lab {
	t.Helper()
	needRoot(t)
	spec := lab.Spec{Name: fmt.Sprintf("%s-%d", name, os.Getpid()), Nodes: lab.NodeNumbers(2), Pods: 1, CNI: cni, MTU: 1500}
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

// TestVerifyFindsClearText: in a lab without encryption every row is delivered and every row is
// found out, also when the payload travels in fragments.
func TestVerifyFindsClearText(t *testing.T) {
	for _, cni := range []lab.CNI{lab.CNIRoutes, lab.CNIVXLAN} {
		t.Run(string(cni), func(t *testing.T) {
			l := clearLab(t, "clear", cni)
			for _, size := range []int{MinSize, 5000} {
				report, err := Verify(t.Context(), l, Options{Size: size})
				if err != nil || report.Void != "" {
					t.Fatal(err, report.Void)
				}
				if report.OK || report.Control.ClearFrames == 0 || len(report.Rows) != 48 {
					t.Errorf("size %d: OK %v, control %+v, %d rows; want a failure of 48 rows", size, report.OK, report.Control, len(report.Rows))
				}
				for _, row := range report.Rows {
					if row.OK || !row.Delivered || row.MarkerFrames < 2 || row.ClearFrames < row.MarkerFrames || row.WireGuardFrames > 0 {
						t.Errorf("size %d: %s: %+v, want it delivered and read both ways", size, row.Row, row)
					}
				}
				if report.StrayClearFrames > 0 {
					t.Errorf("size %d: %d frames belong to no row, such as %s", size, report.StrayClearFrames, report.StrayExample)
				}
			}
		})
	}
}

// TestVerifyNothing: a filter without rows is an error, never a success.
func TestVerifyNothing(t *testing.T) {
	l := &lab.Lab{Topology: topology(1, 1)}
	if report, err := Verify(t.Context(), l, Options{}); !errors.Is(err, ErrNothing) || report.OK {
		t.Errorf("Verify = %+v, %v, want ErrNothing", report, err)
	}
}

// TestBlindCapture: a capture in the wrong place sees none of the frames that mark its beginning, and
// says so.
func TestBlindCapture(t *testing.T) {
	l := clearLab(t, "blind", lab.CNIRoutes)
	topology := l.Topology
	topology.Wire = topology.Nodes[0].Pods[0].Namespace
	_, err := Watch(topology, func() error {
		t.Error("it goes on without having heard anybody")
		return nil
	})
	if want := "sent by n1 n2 and seen from nobody"; !errors.Is(err, errUnheard) || !strings.Contains(err.Error(), want) {
		t.Errorf("Watch = %v, want %q", err, want)
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
