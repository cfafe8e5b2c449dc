package config

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"warren/internal/cluster"
	"warren/internal/yamldoc"
)

// DefaultPath is the configuration file that is read when no other is named.
const DefaultPath = "/etc/warren/warren.yaml"

// Config is everything that can be chosen about an agent. What each key means is in its help (Keys).
// Two configurations are compared by their exported fields; the others remember where values came from.
type Config struct {
	Cluster          string         `yaml:"cluster" json:"cluster"`
	Node             string         `yaml:"node" json:"node"` // empty: the host's name, see NodeID
	Addresses        []netip.Addr   `yaml:"addresses" json:"addresses"`
	Prefixes         []netip.Prefix `yaml:"prefixes" json:"prefixes"`
	Discovery        Discovery      `yaml:"discovery" json:"discovery"`
	Dir              Dir            `yaml:"dir" json:"dir"`
	Kubernetes       Kubernetes     `yaml:"kubernetes" json:"kubernetes"`
	Etcd             Etcd           `yaml:"etcd" json:"etcd"`
	Hold             Hold           `yaml:"hold" json:"hold"`
	KeyChange        KeyChange      `yaml:"key-change" json:"key-change"`
	RotationInterval Duration       `yaml:"rotation-interval" json:"rotation-interval"`
	Mode             cluster.Mode   `yaml:"mode" json:"mode"`
	Exempt           []Exemption    `yaml:"exempt" json:"exempt"`
	Ingress          Ingress        `yaml:"ingress" json:"ingress"`
	Engine           Engine         `yaml:"engine" json:"engine"`
	TunnelProcess    TunnelProcess  `yaml:"tunnel-process" json:"tunnel-process"`
	Device           string         `yaml:"device" json:"device"`
	Port             uint16         `yaml:"port" json:"port"`
	Mark             Mark           `yaml:"mark" json:"mark"`
	MTU              int            `yaml:"mtu" json:"mtu"`
	Oversize         Oversize       `yaml:"oversize" json:"oversize"`
	Underlay         []string       `yaml:"underlay" json:"underlay"`
	StateDir         string         `yaml:"state-dir" json:"state-dir"`
	RunDir           string         `yaml:"run-dir" json:"run-dir"`
	BPFDir           string         `yaml:"bpf-dir" json:"bpf-dir"`
	MetricsAddress   string         `yaml:"metrics-address" json:"metrics-address"`
	LogLevel         LogLevel       `yaml:"log-level" json:"log-level"`
	LogFormat        LogFormat      `yaml:"log-format" json:"log-format"`
	Resync           Duration       `yaml:"resync" json:"resync"`
	IPCache          IPCache        `yaml:"ipcache" json:"ipcache"`
	Facts            []Fact         `yaml:"facts" json:"facts"`
	Attach           Attach         `yaml:"attach" json:"attach"`

	doc   *yamldoc.Document // the file, nil without one
	flags map[string]string // by key: the flag that set it
}

// Dir configures discovery by a folder of records.
type Dir struct {
	Path   string   `yaml:"path" json:"path"`
	Rescan Duration `yaml:"rescan" json:"rescan"`
}

// Kubernetes configures discovery by the resources of a Kubernetes cluster.
type Kubernetes struct {
	Kubeconfig string `yaml:"kubeconfig" json:"kubeconfig"`
}

// Etcd configures discovery by keys in etcd.
type Etcd struct {
	Endpoints    []string `yaml:"endpoints" json:"endpoints"`
	Prefix       string   `yaml:"prefix" json:"prefix"`
	CAFile       string   `yaml:"ca-file" json:"ca-file"`
	CertFile     string   `yaml:"cert-file" json:"cert-file"`
	KeyFile      string   `yaml:"key-file" json:"key-file"`
	User         string   `yaml:"user" json:"user"`
	PasswordFile string   `yaml:"password-file" json:"password-file"`
	Lease        Duration `yaml:"lease" json:"lease"`
}

// Hold keeps nodes whose records vanish all at once.
type Hold struct {
	Share int      `yaml:"share" json:"share"` // percent
	Wait  Duration `yaml:"wait" json:"wait"`
}

// IPCache bounds the maps of addresses in the kernel.
type IPCache struct {
	MaxAddresses uint32 `yaml:"max-addresses" json:"max-addresses"`
	MaxPrefixes  uint32 `yaml:"max-prefixes" json:"max-prefixes"`
}

// Default returns the configuration of an agent that was told nothing. It is valid.
func Default() Config {
	return Config{
		Cluster:        cluster.DefaultCluster,
		Addresses:      []netip.Addr{},
		Prefixes:       []netip.Prefix{},
		Discovery:      DiscoveryDir,
		Dir:            Dir{Path: "/etc/warren/nodes", Rescan: Duration{10 * time.Second}},
		Etcd:           Etcd{Endpoints: []string{}, Prefix: "/warren/v1", Lease: Duration{time.Minute}},
		Hold:           Hold{Share: 50, Wait: Duration{time.Hour}},
		KeyChange:      KeyChangeHold,
		Mode:           cluster.ModePermissive,
		Exempt:         []Exemption{},
		Ingress:        IngressUnderlay,
		Engine:         EngineAuto,
		TunnelProcess:  TunnelByAgent,
		Device:         "warren0",
		Port:           cluster.DefaultPort,
		Mark:           Mark{Value: 0x10, Mask: 0x10},
		Oversize:       OversizeAuto,
		Underlay:       []string{},
		StateDir:       "/var/lib/warren",
		RunDir:         "/run/warren",
		BPFDir:         "/sys/fs/bpf/warren",
		MetricsAddress: "127.0.0.1:9880",
		LogLevel:       LogInfo,
		LogFormat:      LogText,
		Resync:         Duration{15 * time.Second},
		IPCache:        IPCache{MaxAddresses: 65536, MaxPrefixes: 16384},
		Facts:          []Fact{},
		Attach:         AttachAuto,
	}
}

// Load reads a configuration file over the defaults. It checks what Parse checks. A file that does
// not exist is an error that wraps fs.ErrNotExist.
func Load(path string) (Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, yamldoc.MaxSize+1)) // Parse refuses the one byte too many
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(path, data)
}

// Parse reads a configuration over the defaults; name is what problems call it. Unknown and repeated
// keys and values of the wrong type are errors, together with what Validate finds in the rest. Without
// them the values are not checked yet: flags may still change them, then Validate is due. The error is
// yamldoc.Problems.
func Parse(name string, data []byte) (Config, error) {
	doc, err := yamldoc.Parse(name, data)
	if err != nil {
		return Config{}, err
	}
	c := Default()
	c.doc = doc
	if problems := doc.Decode(&c); len(problems) > 0 {
		return Config{}, append(problems, c.problems()...)
	}
	return c, nil
}

// NodeID returns the name of this node in its cluster: the configured one, or else the first label
// of the host's name in lower case.
func (c Config) NodeID() (cluster.NodeID, error) {
	name := c.Node
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return cluster.NodeID{}, fmt.Errorf("name this node: %w; set node in the configuration", err)
		}
		name = shortName(host)
	}
	if err := cluster.ValidName(name); err != nil {
		return cluster.NodeID{}, fmt.Errorf("name this node: %w; set node in the configuration", err)
	}
	return cluster.NodeID{Cluster: c.Cluster, Name: name}, nil
}

func shortName(host string) string {
	label, _, _ := strings.Cut(host, ".")
	return strings.ToLower(label)
}
