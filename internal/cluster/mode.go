package cluster

import (
	"fmt"
	"slices"
)

// Mode is what becomes of packets that are not encrypted. The numbers are those of the eBPF configuration and of the
// probes.
type Mode uint8

// The modes.
const (
	ModeObserve    Mode = iota // change nothing on the wire, only count
	ModePermissive             // encrypt what can be encrypted; the rest passes in clear and is counted
	ModeStrict                 // drop what should be encrypted and cannot be, in both directions
)

var modeNames = [...]string{ModeObserve: "observe", ModePermissive: "permissive", ModeStrict: "strict"}

// String returns the name that the configuration uses; a later version's mode prints as its number.
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// MarshalText implements encoding.TextMarshaler.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads the name of a mode.
func (m *Mode) UnmarshalText(text []byte) error {
	number := slices.Index(modeNames[:], string(text))
	if number < 0 {
		return fmt.Errorf("%q is not a mode; write %s or %s or %s", text, ModeObserve, ModePermissive, ModeStrict)
	}
	*m = Mode(number)
	return nil
}
