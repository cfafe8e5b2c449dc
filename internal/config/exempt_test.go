package config

import (
	"net/netip"
	"strings"
	"testing"
)

func TestExemptionText(t *testing.T) {
	host, subnet := netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("fd00:9::/64")
	for _, test := range []struct {
		name, text string
		want       Exemption
		text2      string // as it is written, "" for text
		problem    string
	}{
		{name: "all of an address", text: "192.0.2.7/32", want: Exemption{Prefix: host}},
		{name: "address without length", text: "192.0.2.7", want: Exemption{Prefix: host}, text2: "192.0.2.7/32"},
		{name: "a protocol by name", text: "fd00:9::/64 icmpv6", want: Exemption{Prefix: subnet, Protocol: 58}},
		{name: "a protocol by number", text: "fd00:9::/64 89", want: Exemption{Prefix: subnet, Protocol: 89}},
		{name: "a known protocol by number", text: "fd00:9::/64 6", want: Exemption{Prefix: subnet, Protocol: 6}, text2: "fd00:9::/64 tcp"},
		{name: "a port", text: "192.0.2.7/32  tcp/179", want: Exemption{host, 6, 179}, text2: "192.0.2.7/32 tcp/179"},
		{name: "empty", text: "", problem: "write a prefix"},
		{name: "too much", text: "192.0.2.7/32 tcp 179", problem: "write a prefix and what of it"},
		{name: "no prefix", text: "tcp/179", problem: "not a prefix"},
		{name: "unmasked", text: "192.0.2.7/24", problem: "write 192.0.2.0/24"},
		{name: "unknown protocol", text: "192.0.2.7/32 tpc/179", problem: `"tpc" is not a protocol`},
		{name: "protocol 0", text: "192.0.2.7/32 0", problem: "not a protocol"},
		{name: "port of a protocol without", text: "192.0.2.7/32 icmp/8", problem: "leave out /8"},
		{name: "port 0", text: "192.0.2.7/32 udp/0", problem: "not a port"},
		{name: "port too large", text: "192.0.2.7/32 udp/65536", problem: "not a port"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got Exemption
			err := got.UnmarshalText([]byte(test.text))
			if test.problem != "" {
				if err == nil || !strings.Contains(err.Error(), test.problem) {
					t.Errorf("error %v, want %q in it", err, test.problem)
				}
				return
			}
			if err != nil || got != test.want {
				t.Fatalf("%+v, %v, want %+v", got, err, test.want)
			}
			if text := got.String(); text != test.text && text != test.text2 {
				t.Errorf("written as %q", text)
			}
		})
	}
}
