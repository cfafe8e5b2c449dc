package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseTransfer(t *testing.T) {
	got, err := parseTransfer(`{"end": {"sum_sent": {"retransmits": 3}, "sum_received": {"bytes": 1000, "bits_per_second": 8000}}}`)
	if err != nil {
		t.Fatal(err)
	}
	if want := (transfer{1000, 8000, 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, text := range []string{"", "{}", `{"error": "the server is busy"}`} {
		if _, err := parseTransfer(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestParseTimes(t *testing.T) {
	machine, err := parseMachine("cpu  100 10 50 900000 77 2 8 0 0 0\ncpu0 1 1 1 1 1 1 1\n")
	if want := 1700 * time.Millisecond; machine != want || err != nil {
		t.Errorf("machine: %v, %v; want %v", machine, err, want)
	}
	process, err := parseProcess("7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 30 12 0 0 20 0 1 0 1 1 1")
	if want := 420 * time.Millisecond; process != want || err != nil {
		t.Errorf("process: %v, %v; want %v", process, err, want)
	}
	for _, text := range []string{"", "cpu 1 2", "cpu a b c d e f g"} {
		if _, err := parseMachine(text); err == nil {
			t.Errorf("machine: %q was accepted", text)
		}
		if _, err := parseProcess(text); err == nil {
			t.Errorf("process: %q was accepted", text)
		}
	}
}

func TestIsTunnel(t *testing.T) {
	tests := []struct {
		name, commandLine string
		want              bool
	}{
		{"Warren's", "/usr/bin/warren\x00tunnel\x00--device\x00warren0\x00", true},
		{"WireGuard's own", "/tmp/wireguard-go\x00-f\x00plain0\x00", true},
		{"an agent", "/usr/bin/warren\x00agent\x00", false},
		{"an agent in a folder of that name", "/src/wireguard-go/warren\x00agent\x00", false},
		{"a process that ended", "", false},
	}
	for _, test := range tests {
		if got := isTunnel(test.commandLine); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

func TestSentBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dev")
	text := "Inter-|   Receive  |  Transmit\n face |bytes ...\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\nwarren0: 10 2 0 0 0 0 0 0 123456 4 0 0 0 0 0 0\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := sentBytes(path, "warren0"); got != 123456 || err != nil {
		t.Errorf("%d, %v; want 123456", got, err)
	}
	if _, err := sentBytes(path, "warren1"); err == nil {
		t.Error("a device that is not there has sent something")
	}
}

func TestParseProgram(t *testing.T) {
	got := parseProgram(`goos: linux
BenchmarkToNetdev/ARP/1000-2         	 1000000	        23.1 ns/op	        20.00 ns/packet
BenchmarkToNetdev/peer-IPv6/300000   	 1000000	       170.5 ns/op	       165.0 ns/packet
BenchmarkApply/write-2               	       1	 170.5 ns/op
PASS
`)
	want := []programFigure{{"ARP", "1000", "20.00"}, {"peer-IPv6", "300000", "165.0"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(programFigure{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseOpenSSL(t *testing.T) {
	got, err := parseOpenSSL("+H:1420\n+F:25:ChaCha20-Poly1305:2137570020.00\n")
	if got != 2137570020 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseOpenSSL("+H:1420\n"); err == nil {
		t.Error("no speed was accepted")
	}
}

func TestParseTop(t *testing.T) {
	got, err := parseTop(`File: warren
Duration: 10.01s, Total samples = 5980ms (59.76%)
      flat  flat%   sum%        cum   cum%
    1630ms 27.26% 27.26%     1630ms 27.26%  internal/runtime/syscall/linux.Syscall6
    1360ms 22.74% 50.00%     1360ms 22.74%  golang.org/x/crypto/chacha20poly1305.chacha20Poly1305Seal
     710ms 11.87% 61.87%      710ms 11.87%  runtime.memmove
     370ms  6.19% 68.06%      370ms  6.19%  runtime.futex
     330ms  5.52% 73.58%     1650ms 27.59%  golang.zx2c4.com/wireguard/device.(*Device).RoutineReadFromTUN
     320ms  5.35% 78.93%      360ms  6.02%  golang.zx2c4.com/wireguard/tun.checksumNoFold
      30ms   0.5% 88.79%       30ms   0.5%  sync/atomic.(*Uint64).CompareAndSwap (inline)
         0     0%   100%       10ms  0.17%  os.(*File).Read
`)
	if err != nil {
		t.Fatal(err)
	}
	want := kinds{"system calls": 1630, "encryption": 1360, "copying and clearing": 710, "scheduling, locks, memory": 400,
		"the engine, and waiting for memory": 330, "checksums, cutting and merging TCP": 320}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := parseTop("Total samples = 0\n"); err == nil {
		t.Error("an empty profile was accepted")
	}
	p := profiled{machine: []string{"a machine"}, bytes: 1e9, ends: [2]kinds{got, got}, limits: []cryptoLimit{{"openssl", 2e9}}}
	golden(t, "profile.md", p.markdown())
}

func TestProcessor(t *testing.T) {
	if got := processor("processor\t: 0\nmodel name\t: AMD EPYC\n"); got != "AMD EPYC" {
		t.Errorf("%q", got)
	}
	if got := processor(""); got != "unknown processor" {
		t.Errorf("%q", got)
	}
}
