package cli

import (
	"bytes"
	"strings"
	"testing"

	"warren/internal/lab"
	"warren/internal/lab/proof"
	"warren/internal/lab/sweep"
)

func TestLabUsage(t *testing.T) {
	for _, test := range []struct {
		name   string
		args   []string
		code   int
		stderr string // part of it
	}{
		{"no such lab", []string{"lab", "status", "--name", "never-built"}, exitFailure, "no such lab: never-built; 'warren lab up --name never-built' builds it"},
		{"name in capitals", []string{"lab", "up", "--name", "X"}, exitUsage, `lab name "X"`},
		{"no nodes", []string{"lab", "up", "--nodes", "0"}, exitUsage, "0 nodes"},
		{"unknown CNI", []string{"lab", "up", "--cni", "magic"}, exitUsage, `CNI "magic"`},
		{"unknown attachment", []string{"lab", "up", "--attach", "xdp"}, exitUsage, "xdp"},
		{"unknown ingress", []string{"lab", "up", "--ingress", "nowhere"}, exitUsage, "nowhere"},
		{"no such binary", []string{"lab", "up", "--binary", "/no/such/file"}, exitFailure, "/no/such/file"},
		{"a path to no node", []string{"lab", "up", "--path-mtu", "n4=1400"}, exitUsage, "--path-mtu n4=1400: the lab has 3 nodes, from n1 on"},
		{"a path without a size", []string{"lab", "up", "--path-mtu", "n3"}, exitUsage, "--path-mtu n3: a node and a number of bytes, such as n3=1400"},
		{"a path wider than the wire", []string{"lab", "up", "--path-mtu", "n3=9000"}, exitUsage, "path MTU 9000: 1280 to the wire's 1500"},
		{"a router without a path", []string{"lab", "up", "--path-icmp", "block"}, exitUsage, "--path-icmp block: there is no router without --path-mtu"},
		{"a router that does something else", []string{"lab", "up", "--path-icmp", "drop"}, exitUsage, "--path-icmp drop: pass or block"},
		{"no Kubernetes to run", []string{"lab", "up", "--kube", "--kube-bin", "/no/such/folder"}, exitFailure, "no Kubernetes binaries: scripts/kubetools.sh builds them"},
		{"exec without a command", []string{"lab", "exec", "n1"}, exitUsage, "requires at least 2 arg"},
		{"agent without a node", []string{"lab", "agent", "kill"}, exitUsage, "requires at least 1 arg"},
		{"verify of an unknown class", []string{"lab", "verify", "--class", "pod-cloud"}, exitUsage, "--class pod-cloud: one of host-host"},
		{"payload too small for a marker", []string{"lab", "verify", "--size", "8"}, exitUsage, "--size 8: 32 to 60000"},
		{"sweep of sizes that no packet has", []string{"lab", "sweep", "--sizes", "20-1500"}, exitUsage, `sizes "20-1500": 68 to 65535 bytes`},
		{"sweep of an unknown protocol", []string{"lab", "sweep", "--protocol", "sctp"}, exitUsage, "--protocol sctp: one of icmp, udp, tcp"},
		{"neither with nor without", []string{"lab", "sweep", "--df", "maybe"}, exitUsage, "--df maybe: one of yes, no"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, _, stderr := run(t, "", test.args...)
			if code != test.code || !strings.Contains(stderr, test.stderr) {
				t.Errorf("exit code %d, want %d; stderr %q, want %q in it", code, test.code, stderr, test.stderr)
			}
		})
	}
}

// verification is a report of two nodes by TCP.
func verification(change func(*proof.Report)) proof.Report {
	row := func(from, to, family string) proof.Result {
		return proof.Result{
			Row:       proof.Row{Class: "pod-pod", From: from, To: to, Family: family, Protocol: "tcp"},
			Delivered: true, WireGuardFrames: 10, OK: true,
		}
	}
	r := proof.Report{
		OK: true, Lab: "x", Control: proof.Control{Rows: 4, Delivered: 4, ClearFrames: 40, MarkerFrames: 8}, Frames: 60, WireGuardFrames: 40,
		Rows: []proof.Result{row("n1", "n2", "ipv4"), row("n2", "n1", "ipv4"), row("n1", "n2", "ipv6"), row("n2", "n1", "ipv6")},
	}
	if change != nil {
		change(&r)
	}
	return r
}

func TestPrintReport(t *testing.T) {
	leak := func(r *proof.Report) {
		r.OK, r.StrayClearFrames, r.StrayExample = false, 1, "udp 10.10.0.1:9 > 10.10.0.2:9 (sent by n1, 60 bytes)"
		r.Rows[1].OK, r.Rows[1].MarkerFrames, r.Rows[1].ClearFrames = false, 2, 10
		r.Rows[1].Problem = "its payload could be read in 2 frames on the wire, such as tcp 10.42.2.11:40000 > 10.42.1.11:4242 (sent by n2, 74 bytes)"
		r.Rows[2].OK, r.Rows[2].Delivered, r.Rows[2].Problem = false, false, "no answer (timed out): n1 sent 3 WireGuard frames, n2 sent none back"
	}
	for _, test := range []struct {
		name   string
		report proof.Report
		all    bool
	}{
		{"ok", verification(nil), false},
		{"all", verification(nil), true},
		{"leak", verification(leak), false},
		{"void", verification(func(r *proof.Report) { r.OK, r.Void = false, "the capture is incomplete" }), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			printReport(&out, test.report, test.all)
			golden(t, "report-"+test.name+".golden", out.Bytes())
		})
	}
}

// swept is a report of two nodes by UDP: with "don't fragment" something was refused, and in one row something lost.
func swept() sweep.Report {
	row := func(from, to string, df bool) sweep.Result {
		return sweep.Result{Row: proof.Row{Class: "pod-pod", From: from, To: to, Family: "ipv4", Protocol: "udp"}, DF: df, Delivered: sweep.Sizes{68, 1440, 1500}, OK: true}
	}
	r := sweep.Report{Lab: "x", Sizes: sweep.Sizes{68, 1440, 1500}, Rows: []sweep.Result{
		row("n1", "n2", false), row("n1", "n2", true), row("n2", "n1", false), row("n2", "n1", true),
	}}
	r.Rows[1].Delivered, r.Rows[1].Told = sweep.Sizes{68, 1440}, []sweep.Told{{MTU: 1440, Sizes: sweep.Sizes{1500}}}
	r.Rows[3].Delivered, r.Rows[3].Lost, r.Rows[3].OK, r.Rows[3].Problem = sweep.Sizes{68, 1440}, sweep.Sizes{1500}, false, "lost 1500, and nobody was told"
	return r
}

func TestPrintSweep(t *testing.T) {
	for name, all := range map[string]bool{"groups": false, "all": true} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			printSweep(&out, swept(), all)
			golden(t, "sweep-"+name+".golden", out.Bytes())
		})
	}
}

func TestPrintLab(t *testing.T) {
	spec := lab.Spec{Name: "x", Nodes: []int{1, 2}, Pods: 1, CNI: lab.CNIVXLAN, MTU: 1500, Path: &lab.Path{Node: 2, MTU: 1400, Silent: true}, Agent: &lab.AgentOptions{}}
	status := lab.Status{
		Name: "x", Wire: "warren-x-wire", Router: &lab.RouterStatus{Namespace: "warren-x-router", Node: "n2", MTU: 1400, Silent: true}, Encryption: true, Nodes: []lab.NodeStatus{
			{Name: "n1", Namespace: "warren-x-n1", Addresses: []string{"10.10.0.1", "fd00:10::1"}, Prefixes: []string{"10.42.1.0/24"},
				Pods:  []lab.PodStatus{{Name: "p1", Namespace: "warren-x-n1-p1", Addresses: []string{"10.42.1.11"}}},
				Agent: &lab.AgentStatus{PID: 77, Ready: true, Peers: 1}},
			{Name: "n2", Namespace: "warren-x-n2", Addresses: []string{"10.10.0.2", "fd00:10::2"}, Prefixes: []string{"10.42.2.0/24"},
				Pods:  []lab.PodStatus{{Name: "p1", Namespace: "warren-x-n2-p1", Addresses: []string{"10.42.2.11"}}},
				Agent: &lab.AgentStatus{Detail: []string{"no agent is running"}, Log: "/run/warren-lab/x/n2/agent.log"}},
		},
	}
	var out bytes.Buffer
	printLab(&out, spec, status)
	golden(t, "lab-status.golden", out.Bytes())
}

// TestPrintLabWithKube: the first line of a lab with Kubernetes, and where its API server is, with what is wrong with it.
func TestPrintLabWithKube(t *testing.T) {
	spec := lab.Spec{Name: "x", Nodes: []int{1}, CNI: lab.CNIRoutes, MTU: 1500, Kube: &lab.KubeOptions{}}
	for _, test := range []struct {
		name   string
		ready  bool
		detail []string
	}{
		{name: "ready", ready: true},
		{name: "away", detail: []string{"kube-apiserver is not ready: connection refused"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			status := lab.Status{Name: "x", Wire: "warren-x-wire", Control: &lab.ControlStatus{
				Node: "n1", Server: "https://10.10.0.1:6443", Kubeconfig: "/run/warren-lab/x/kubeconfig", Ready: test.ready, Detail: test.detail,
			}}
			if status.Ready() != test.ready {
				t.Errorf("Ready() = %v", status.Ready())
			}
			var out bytes.Buffer
			printLab(&out, spec, status)
			golden(t, "lab-status-kube-"+test.name+".golden", out.Bytes())
		})
	}
}
