package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Exemption is traffic that stays in clear although it is between machines of the cluster, in words:
//
//	PREFIX [PROTOCOL[/PORT]]
//
// such as "192.0.2.7/32 tcp/179". It is all traffic from or to the prefix, of that protocol and with that
// port at either end.
type Exemption struct {
	Prefix   netip.Prefix
	Protocol uint8  // IP protocol number (IANA), 0 for any
	Port     uint16 // 0 for any
}

// protocols are the names that can be said instead of numbers.
var protocols = map[string]uint8{"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "sctp": 132}

// maxExemptions is what the datapath looks through for a packet.
const maxExemptions = 64

// UnmarshalText implements encoding.TextUnmarshaler.
func (e *Exemption) UnmarshalText(text []byte) (err error) {
	fields := strings.Fields(string(text))
	if len(fields) == 0 || len(fields) > 2 {
		return fmt.Errorf("%q; write a prefix and what of it, such as 192.0.2.7/32 tcp/179", text)
	}
	var parsed Exemption
	if parsed.Prefix, err = parsePrefix(fields[0]); err != nil {
		return err
	}
	if len(fields) == 2 {
		if err := parsed.setProtocol(fields[1]); err != nil {
			return err
		}
	}
	*e = parsed
	return nil
}

func (e *Exemption) setProtocol(text string) error {
	name, port, hasPort := strings.Cut(text, "/")
	number, known := protocols[name]
	if !known {
		n, err := strconv.ParseUint(name, 10, 8)
		if err != nil || n == 0 {
			return fmt.Errorf("%q is not a protocol; write tcp, udp, icmp, icmpv6, sctp, or a number from 1 to 255", name)
		}
		number = uint8(n)
	}
	e.Protocol = number
	if !hasPort {
		return nil
	}
	if number != protocols["tcp"] && number != protocols["udp"] {
		return fmt.Errorf("%s has no ports that the datapath knows; leave out /%s", name, port)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("%q is not a port; write one from 1 to 65535", port)
	}
	e.Port = uint16(n)
	return nil
}

// String returns the words that UnmarshalText reads.
func (e Exemption) String() string {
	if e.Protocol == 0 {
		return e.Prefix.String()
	}
	protocol := strconv.Itoa(int(e.Protocol))
	for name, number := range protocols {
		if number == e.Protocol {
			protocol = name
		}
	}
	if e.Port == 0 {
		return e.Prefix.String() + " " + protocol
	}
	return fmt.Sprintf("%s %s/%d", e.Prefix, protocol, e.Port)
}

// MarshalText implements encoding.TextMarshaler.
func (e Exemption) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

func checkExempt(c Config, say report) {
	if n := len(c.Exempt); n > maxExemptions {
		say("", fmt.Errorf("%d exemptions, at most %d; use shorter prefixes", n, maxExemptions))
	}
	seen := map[Exemption]bool{}
	for i, exemption := range c.Exempt {
		if seen[exemption] {
			say(fmt.Sprintf("[%d]", i), errors.New("is there twice; remove one of the two"))
		}
		seen[exemption] = true
	}
}
