package config

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// KeyChange is what becomes of a known node whose key changes without the old key having announced it.
type KeyChange string

// The choices of KeyChange.
const (
	KeyChangeHold   KeyChange = "hold"   // the old key counts until the new one answers and the old one does not
	KeyChangeAccept KeyChange = "accept" // the record counts
)

// Discovery is the engine that carries the records of the nodes.
type Discovery string

// The engines of discovery.
const (
	DiscoveryDir        Discovery = "dir"        // a watched folder with one file per node
	DiscoveryKubernetes Discovery = "kubernetes" // one WarrenNode per node
	DiscoveryEtcd       Discovery = "etcd"       // one key per node
)

// Ingress is the device on which the kernel meets decrypted packets.
type Ingress string

// The choices of Ingress.
const (
	IngressUnderlay Ingress = "underlay" // as if they had come in clear
	IngressDevice   Ingress = "device"   // the WireGuard device
)

// Oversize is what happens to packets that the tunnel cannot carry whole.
type Oversize string

// The choices of Oversize.
const (
	OversizeAuto     Oversize = "auto"     // sent in fragments, and pods are told to send less
	OversizeFragment Oversize = "fragment" // sent in fragments, nobody is told
	OversizeICMP     Oversize = "icmp"     // pods are told, and their packet is not sent
)

// Engine is who encrypts.
type Engine string

// The engines.
const (
	EngineAuto      Engine = "auto"      // the kernel where it can, otherwise userspace
	EngineKernel    Engine = "kernel"    // the kernel's WireGuard or none
	EngineUserspace Engine = "userspace" // the process `warren tunnel`
)

// TunnelProcess is who starts `warren tunnel`, where it is needed.
type TunnelProcess string

// The choices of TunnelProcess.
const (
	TunnelByAgent    TunnelProcess = "agent"    // the agent, unless a launcher serves the run directory
	TunnelByLauncher TunnelProcess = "launcher" // the process `warren launcher`, and nobody while there is none
)

// Attach is how the programs are attached to underlay devices.
type Attach string

// The choices of Attach.
const (
	AttachAuto   Attach = "auto"   // TCX where the kernel has it, otherwise clsact
	AttachTCX    Attach = "tcx"    // Linux 6.6 and later
	AttachClsact Attach = "clsact" // any kernel
)

// LogLevel is the least level that is logged.
type LogLevel string

// The levels.
const (
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
)

// Level implements slog.Leveler; what is no level counts as info.
func (l LogLevel) Level() slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(l))
	return level
}

// LogFormat is how log lines are written.
type LogFormat string

// The formats.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Duration is a time.Duration that files and flags write as 10s or 1m30s.
type Duration struct{ time.Duration }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration; write one such as 10s", text)
	}
	d.Duration = parsed
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Mark is a packet mark: Value in the bits of Mask, as in `iptables -m mark --mark value/mask`.
type Mark struct{ Value, Mask uint32 }

// UnmarshalText implements encoding.TextUnmarshaler: "0x10/0x30", or "0x10" for a mask that is the value.
func (m *Mark) UnmarshalText(text []byte) error {
	value, mask, both := strings.Cut(string(text), "/")
	if !both {
		mask = value
	}
	v, errValue := strconv.ParseUint(value, 0, 32)
	k, errMask := strconv.ParseUint(mask, 0, 32)
	if errValue != nil || errMask != nil {
		return fmt.Errorf("%q is not a mark; write value/mask of 32 bits, such as 0x10/0x10", text)
	}
	*m = Mark{Value: uint32(v), Mask: uint32(k)}
	return nil
}

// String returns "0x10/0x10".
func (m Mark) String() string { return fmt.Sprintf("%#x/%#x", m.Value, m.Mask) }

// MarshalText implements encoding.TextMarshaler.
func (m Mark) MarshalText() ([]byte, error) { return []byte(m.String()), nil }
