package main

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBench takes one short turn of every setting: what `make bench` runs works at all.
func TestBench(t *testing.T) {
	need(t)
	binary := warrenBinary(t)
	b, err := newBed(t.Context(), binary, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	r, err := b.takeTurns(t.Context(), options{binary: binary, runs: 1, seconds: 1})
	if err != nil {
		t.Fatal(err)
	}
	if want := 2 * (2*4 + 3); len(r.metrics) != want {
		t.Errorf("%d rows, want %d", len(r.metrics), want)
	}
	for _, m := range r.metrics {
		for i, setting := range r.settings {
			values := r.values[m][setting]
			// Clear has no tunnel processes, and Warren has none where the kernel has WireGuard.
			mayBeZero := m.unit == "segments" || m.unit == "s/GiB" && i != 1 && i != 2
			if len(values) != 1 || values[0] <= 0 && !mayBeZero {
				t.Errorf("%s, %s: %v in %s", m.path, m.name, values, setting)
			}
		}
	}
	t.Logf("\n%s", r.markdown())
}

// TestOtherWay: figures of a setting whose device carried nothing are refused.
func TestOtherWay(t *testing.T) {
	need(t)
	b, err := newBed(t.Context(), warrenBinary(t), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.close() })
	if _, err := b.bulk(t.Context(), elsewhere{}, b.paths(inClear{})[0], 1, 1e9); err == nil {
		t.Error("traffic that did not take the setting's device was counted for it")
	}
}

// elsewhere is a setting in clear that claims to use another device.
type elsewhere struct{ inClear }

func (elsewhere) device() string { return "cni0" }

// warrenBinary is the one that the tests were given, or a new one.
func warrenBinary(t *testing.T) string {
	t.Helper()
	if binary := os.Getenv("WARREN_BINARY"); binary != "" {
		return binary
	}
	binary := filepath.Join(t.TempDir(), "warren")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "warren/cmd/warren")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build warren: %v\n%s", err, output)
	}
	return binary
}

// need skips where labs or iperf3 are missing, and fails where they must be there.
func need(t *testing.T) {
	t.Helper()
	_, err := exec.LookPath("iperf3")
	switch {
	case unix.Geteuid() == 0 && err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("needs root and iperf3 (%v)", err)
	default:
		t.Skip("needs root and iperf3")
	}
}
