package vm

import (
	"bytes"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// ping sends an echo request every 50 ms from a place in the lab, until it is finished.
type ping struct {
	name    string
	command *exec.Cmd
	output  bytes.Buffer
}

func startPing(t *testing.T, from string, to netip.Addr) *ping {
	t.Helper()
	p := &ping{name: "ping from " + from + " to " + to.String()}
	arguments := []string{"lab", "exec", "--name", labName, from, "--", "ping", "-n", "-q", "-i", "0.05", to.String()}
	// Once before it counts, so that no handshake does.
	if output, err := exec.Command("warren", append(arguments, "-c", "10")...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", p.name, err, output)
	}
	p.command = exec.Command("warren", arguments...)
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	if err := p.command.Start(); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	t.Cleanup(func() { _ = p.command.Process.Kill() })
	return p
}

var pingSummary = regexp.MustCompile(`(\d+) packets transmitted, (\d+) (?:packets )?received`)

// finish ends it and wants every request answered, but for one that is under way at the end.
func (p *ping) finish(t *testing.T) {
	t.Helper()
	if err := p.command.Process.Signal(os.Interrupt); err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	_ = p.command.Wait() // its code says less than its summary
	counts := pingSummary.FindSubmatch(p.output.Bytes())
	if counts == nil {
		t.Fatalf("%s has no summary:\n%s", p.name, p.output.String())
	}
	sent, _ := strconv.Atoi(string(counts[1]))
	received, _ := strconv.Atoi(string(counts[2]))
	t.Logf("%s: %d sent, %d answered", p.name, sent, received)
	if received < 50 || sent-received > 1 {
		t.Errorf("%s: %d sent, %d answered:\n%s", p.name, sent, received, p.output.String())
	}
}
