package lab

import (
	"fmt"
	"path/filepath"
	"strings"

	"warren/internal/api"
)

// nodeDirs are the places of one node in the lab's directory.
type nodeDirs struct{ root string }

func (d nodeDirs) config() string     { return filepath.Join(d.root, "config.yaml") }
func (d nodeDirs) state() string      { return filepath.Join(d.root, "state") }
func (d nodeDirs) run() string        { return filepath.Join(d.root, "run") }
func (d nodeDirs) bpf() string        { return filepath.Join(d.root, "bpf") }
func (d nodeDirs) pins() string       { return filepath.Join(d.bpf(), "warren") }
func (d nodeDirs) wireguard() string  { return filepath.Join(d.root, "wireguard") }
func (d nodeDirs) log() string        { return filepath.Join(d.root, "agent.log") }
func (d nodeDirs) cni() string        { return filepath.Join(d.root, "cni") }
func (d nodeDirs) kubeconfig() string { return filepath.Join(d.root, "kubeconfig") }
func (d nodeDirs) pid() string        { return filepath.Join(d.root, "agent.pid") }

// client speaks to the node's agent.
func (d nodeDirs) client() *api.Client { return api.Dial(filepath.Join(d.run(), api.SocketName)) }

// agentConfig writes the agent's configuration file. records is the folder of records; "" is Kubernetes, which has the
// records and says what the node's addresses and prefixes are. Everything in it is a plain YAML scalar: names,
// addresses and paths of the lab's own making.
func agentConfig(n Node, dirs nodeDirs, records string, options AgentOptions) string {
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	list := func(key string, items []string) {
		line("%s:", key)
		for _, item := range items {
			line("  - %q", item)
		}
	}
	line("node: %s", n.Name)
	if records != "" {
		list("addresses", texts(n.Addresses))
		list("prefixes", texts(n.Prefixes))
		line("dir:\n  path: %s", records)
	} else {
		line("discovery: kubernetes\nkubernetes:\n  kubeconfig: %s", dirs.kubeconfig())
	}
	line("state-dir: %s", dirs.state())
	line("run-dir: %s", dirs.run())
	line("bpf-dir: %s", dirs.pins())
	line("metrics-address: %q", "127.0.0.1:9880")
	for _, option := range []struct{ key, value string }{
		{"attach", options.Attach}, {"ingress", options.Ingress}, {"mode", options.Mode}, {"log-level", options.LogLevel},
	} {
		if option.value != "" {
			line("%s: %s", option.key, option.value)
		}
	}
	return text.String()
}

// texts prints every value.
func texts[T fmt.Stringer](values []T) []string {
	words := make([]string, 0, len(values))
	for _, value := range values {
		words = append(words, value.String())
	}
	return words
}
