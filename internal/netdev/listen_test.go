package netdev

import (
	"net"
	"net/netip"
	"testing"
)

// TestAccepts asks for each server and client while some listen and one is connected.
func TestAccepts(t *testing.T) {
	n := namespace(t)
	if err := n.SetUp("lo"); err != nil {
		t.Fatal(err)
	}
	for at, network := range map[string]string{
		"127.0.0.1:1001": "tcp4", "[::1]:1002": "tcp6", "0.0.0.0:1003": "tcp4", "[::]:1004": "tcp",
	} {
		listener, err := net.Listen(network, at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2001}}
	connection, err := dialer.Dial("tcp4", "127.0.0.1:1004")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	tests := []struct {
		name, server, client string
		want                 bool
	}{
		{"an address of IPv4", "127.0.0.1:1001", "127.0.0.1:2001", true},
		{"an address of IPv6", "[::1]:1002", "[::1]:2001", true},
		{"all of IPv4", "127.0.0.1:1003", "127.0.0.1:2001", true},
		{"all of IPv4, asked for IPv6", "[::1]:1003", "[::1]:2001", false},
		{"all of both, asked for IPv6", "[::1]:1004", "[::1]:2001", true},
		{"all of both, asked for IPv4", "127.0.0.1:1004", "127.0.0.1:2002", true},
		{"there is a connection", "127.0.0.1:1004", "127.0.0.1:2001", false},
		{"another address", "127.0.0.2:1001", "127.0.0.1:2001", false},
		{"another port", "127.0.0.1:1005", "127.0.0.1:2001", false},
		{"a client's port", "127.0.0.1:2001", "127.0.0.1:2002", false},
	}
	for _, test := range tests { // no subtests: the namespace is this thread's
		got, err := Accepts(netip.MustParseAddrPort(test.server), netip.MustParseAddrPort(test.client))
		if err != nil || got != test.want {
			t.Errorf("%s: accepts: %t, %v; want %t", test.name, got, err, test.want)
		}
	}
}
