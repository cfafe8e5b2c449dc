package config

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"warren/internal/cluster"
	"warren/internal/yamldoc"
)

// Reload returns next with those values of c that only a start of the agent can change, and the keys of
// those that next would have changed.
func (c Config) Reload(next Config) (reloaded Config, fixed []string) {
	before, after := yamldoc.Leaves(&c), yamldoc.Leaves(&next)
	reloaded = next
	for i, r := range rules {
		old := yamldoc.Text(before[i].Value)
		if !r.fixed || old == yamldoc.Text(after[i].Value) {
			continue
		}
		fixed = append(fixed, r.key)
		if err := yamldoc.SetText(&reloaded, r.key, old); err != nil {
			panic(fmt.Sprintf("write %s as %q and read it again: %v", r.key, old, err)) // a value of c is valid
		}
	}
	return reloaded, fixed
}

// Key describes one value that can be configured.
type Key struct {
	// Name is the path in the file, "dir.path".
	Name string
	// Help says what it does, in one or two sentences.
	Help string
	// Default is the default as Set reads it; lists are separated by commas.
	Default string
	// Values are the words that may be given; nil when any value of the type may.
	Values []string
}

// Flag returns the name of the flag that sets the key: "dir-path" for "dir.path".
func (k Key) Flag() string { return strings.ReplaceAll(k.Name, ".", "-") }

// Keys returns every key, in the order of the file.
func Keys() []Key {
	c := Default()
	keys := make([]Key, 0, len(rules))
	for i, leaf := range yamldoc.Leaves(&c) {
		keys = append(keys, Key{Name: leaf.Key, Help: rules[i].help, Default: yamldoc.Text(leaf.Value), Values: rules[i].words})
	}
	return keys
}

// Set gives one key a value from text, as a flag does: the value wins over the file's. The value is
// checked at once, and again with all others by Validate; an error names the flag and leaves c as it was.
func (c *Config) Set(key, value string) error {
	changed := *c
	changed.flags = map[string]string{key: "--" + Key{Name: key}.Flag()}
	maps.Copy(changed.flags, c.flags)
	if err := yamldoc.SetText(&changed, key, value); err != nil {
		return changed.blame(key, err)
	}
	if err := changed.problemsOf(key).Err(); err != nil {
		return err
	}
	*c = changed
	return nil
}

// blame places an error of SetText at the flag.
func (c Config) blame(key string, err error) error {
	var p yamldoc.Problem
	if !errors.As(err, &p) {
		return err
	}
	p.Where, p.Key = c.where(key, strings.TrimPrefix(p.Key, key))
	return p
}

// rule is what is known of a key besides its type and default.
type rule struct {
	key   string
	help  string
	fixed bool                       // read when the agent starts, and not again
	words []string                   // the only values, nil for any
	check func(c Config, say report) // nil when any value of the type will do
}

// report takes a problem with a value, in the form "message; remedy". part is "" for the value itself,
// "[1]" for the second element of a list.
type report func(part string, err error)

// rules has one row for each key, in the order of Config.
var rules = []rule{
	{key: "cluster", fixed: true, check: checkCluster,
		help: "Name of the cluster. Nodes of other clusters are never peers."},
	{key: "node", fixed: true, check: checkNode,
		help: "Name of this node, unique in the cluster. Empty: the host's name, lower-cased, up to the first dot."},
	{key: "addresses", check: checkAddresses,
		help: "Addresses of this node on its underlay devices; the first of each family is the tunnel endpoint. Empty: found by the agent."},
	{key: "prefixes", check: checkPrefixes,
		help: "What lives behind this node: its pod CIDRs, or addresses of single pods."},
	{key: "discovery", fixed: true, words: words(DiscoveryDir, DiscoveryKubernetes, DiscoveryEtcd),
		help: "How nodes find each other. dir: one YAML record per node in a folder. kubernetes: one WarrenNode resource per node. etcd: one key per node."},
	{key: "dir.path", fixed: true, check: absolute(func(c Config) string { return c.Dir.Path }),
		help: "Folder of the records. This node writes its own there."},
	{key: "dir.rescan", fixed: true, check: between(minRescan, maxRescan, func(c Config) Duration { return c.Dir.Rescan }),
		help: "How often the folder is read even when the file system reports no change (NFS)."},
	{key: "kubernetes.kubeconfig", fixed: true, check: optionalFile(func(c Config) string { return c.Kubernetes.Kubeconfig }),
		help: "File that says where the API server is and who this agent is there. Empty: what a pod's service account has."},
	{key: "etcd.endpoints", fixed: true, check: checkEtcdEndpoints,
		help: "URLs of the members of etcd: https://192.0.2.1:2379."},
	{key: "etcd.prefix", fixed: true, check: checkEtcdPrefix,
		help: "What the keys of this cluster begin with; a node's record is at PREFIX/nodes/NAME."},
	{key: "etcd.ca-file", fixed: true, check: optionalFile(func(c Config) string { return c.Etcd.CAFile }),
		help: "Certificates (PEM) of who signs the members' certificates. Empty: the system's."},
	{key: "etcd.cert-file", fixed: true, check: optionalFile(func(c Config) string { return c.Etcd.CertFile }),
		help: "Certificate (PEM) that this node shows to etcd. Empty: none."},
	{key: "etcd.key-file", fixed: true, check: checkEtcdKey,
		help: "Private key (PEM) of etcd.cert-file."},
	{key: "etcd.user", fixed: true,
		help: "User of etcd that this node is. Empty: the one that its certificate names, or nobody."},
	{key: "etcd.password-file", fixed: true, check: checkEtcdPassword,
		help: "File with the password of etcd.user."},
	{key: "etcd.lease", fixed: true, check: between(minLease, maxLease, func(c Config) Duration { return c.Etcd.Lease }),
		help: "How long this node's record stays in etcd when its agent does not renew it. The node stays a peer for longer: hold.wait."},
	{key: "hold.share", fixed: true, check: checkHoldShare,
		help: "When two records or more, and this share of all in percent, vanish within two seconds, their nodes stay peers for hold.wait, and status says so. 0: never."},
	{key: "hold.wait", fixed: true, check: between(minHoldWait, maxHoldWait, func(c Config) Duration { return c.Hold.Wait }),
		help: "How long such nodes stay peers, unless their records come back or `warren nodes forget` says that they are gone. With etcd: how long a node whose record ran out is silent before it is no peer any more."},
	{key: "key-change", fixed: true, words: words(KeyChangeHold, KeyChangeAccept),
		help: "A known node has another key, which its old key did not announce. hold: the new key counts when it answers and the old one does not, as after a lost disk. accept: it counts at once."},
	{key: "rotation-interval", check: checkRotationInterval,
		help: "How often this node replaces its key, a tenth of it earlier or later. 0: only when `warren keys rotate` says so."},
	{key: "mode", words: words(cluster.ModeObserve, cluster.ModePermissive, cluster.ModeStrict),
		help: "observe: only count. permissive: encrypt towards known peers, the rest passes in clear and is counted. strict: drop what cannot be encrypted."},
	{key: "exempt", check: checkExempt,
		help: "What stays in clear in every mode, one a line: 192.0.2.7/32 tcp/179 is all TCP from or to that address with port 179 at either end; protocol and port are optional."},
	{key: "ingress", words: words(IngressUnderlay, IngressDevice),
		help: "Where the kernel meets decrypted packets. underlay: on the device they would have come in by, so that firewall rules keep their meaning. device: on the WireGuard device."},
	{key: "engine", fixed: true, words: words(EngineAuto, EngineKernel, EngineUserspace),
		help: "Who encrypts. auto: the kernel's WireGuard where there is one, otherwise the process `warren tunnel`."},
	{key: "tunnel-process", fixed: true, words: words(TunnelByAgent, TunnelByLauncher),
		help: "Who starts `warren tunnel`. agent: the agent, or `warren launcher` where its socket is in the run directory. launcher: nobody else, and the agent waits for it; for containers, since what an agent starts in one ends with it."},
	{key: "device", fixed: true, check: checkDevice,
		help: "Name of the WireGuard device. Those that come with a second key have b, c or d behind it."},
	{key: "port", fixed: true, check: checkPort,
		help: "First of four UDP ports of WireGuard devices, on every address of the node. The others are used when keys are replaced."},
	{key: "mark", fixed: true, check: checkMark,
		help: "Packet mark of what is encrypted, value/mask. Choose bits that nothing else on the node uses."},
	{key: "mtu", check: checkMTU,
		help: "MTU of the WireGuard device in bytes, and largest packet for every peer. 0: from the underlay, and for each peer from its path."},
	{key: "oversize", words: words(OversizeAuto, OversizeFragment, OversizeICMP),
		help: "Packets that the tunnel cannot carry whole. auto: sent in fragments, and a pod whose packet must not be fragmented is told a size that fits (ICMP). fragment: nobody is told. icmp: such a pod is told, and its packet is not sent. The host's own packets are always sent in fragments."},
	{key: "underlay", check: checkUnderlay,
		help: "Names of the devices that lead to other nodes, as shell patterns (eth*). Empty: the devices that carry the node's addresses."},
	{key: "state-dir", fixed: true, check: absolute(func(c Config) string { return c.StateDir }),
		help: "Folder for what must survive a reboot: the private key and the last known state."},
	{key: "run-dir", fixed: true, check: checkRunDir,
		help: "Folder for what need not survive a reboot: the agent's socket."},
	{key: "bpf-dir", fixed: true, check: absolute(func(c Config) string { return c.BPFDir }),
		help: "Folder on a BPF file system, for the programs and maps that outlive the agent."},
	{key: "metrics-address", fixed: true, check: checkMetricsAddress,
		help: "host:port for Prometheus metrics and health over HTTP. Empty: none."},
	{key: "log-level", words: words(LogDebug, LogInfo, LogWarn, LogError),
		help: "Least level that is logged."},
	{key: "log-format", fixed: true, words: words(LogText, LogJSON),
		help: "Form of the log lines."},
	{key: "resync", fixed: true, check: between(minResync, maxResync, func(c Config) Duration { return c.Resync }),
		help: "How often the kernel's state is read and repaired, also when nothing changed."},
	{key: "ipcache.max-addresses", fixed: true, check: sized(maxAddresses, func(c Config) uint32 { return c.IPCache.MaxAddresses }),
		help: "Most single addresses that the kernel's map holds. A change takes effect when the agent starts, and keeps what is there."},
	{key: "ipcache.max-prefixes", fixed: true, check: sized(maxPrefixes, func(c Config) uint32 { return c.IPCache.MaxPrefixes }),
		help: "Most prefixes that the kernel's map holds. A change takes effect when the agent starts, and keeps what is there."},
	{key: "facts", check: checkFacts,
		help: "What is known of addresses besides the records, one prefix a line: 192.0.2.0/24 label=site:b owner=default/n2 endpoint=10.0.0.2 key=1, all but the prefix optional; encrypt=no instead of the endpoint for what must stay in clear."},
	{key: "attach", fixed: true, words: words(AttachAuto, AttachTCX, AttachClsact),
		help: "How programs are attached, for tests. auto: TCX on Linux 6.6 and later, otherwise clsact."},
}

func words[T any](values ...T) []string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = fmt.Sprint(value)
	}
	return texts
}
