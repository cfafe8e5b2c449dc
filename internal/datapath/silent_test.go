package datapath

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"warren/internal/cluster"
	"warren/internal/datapath/model"
	"warren/internal/plan"
)

// listening is where this machine has an API server.
var listening = []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:6443"), netip.MustParseAddrPort("[fd00::1]:6443")}

// anywhere binds to addresses that the machine does not have, and that another process of a fuzz test may have, too.
var anywhere = net.ListenConfig{Control: func(network, _ string, conn syscall.RawConn) (err error) {
	level, option := unix.IPPROTO_IP, unix.IP_FREEBIND
	if network == "tcp6" {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_FREEBIND
	}
	controlErr := conn.Control(func(fd uintptr) {
		err = errors.Join(unix.SetsockoptInt(int(fd), level, option, 1), unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	})
	return errors.Join(controlErr, err)
}}

// listenOnce returns the listeners too: one that nobody holds is closed.
var listenOnce = sync.OnceValues(func() (listeners []net.Listener, err error) {
	for _, at := range listening {
		listener, listenErr := anywhere.Listen(context.Background(), "tcp", at.String())
		listeners, err = append(listeners, listener), errors.Join(err, listenErr)
	}
	return listeners, err
})

// listenAsServer listens until the process of the tests ends.
func listenAsServer(t testing.TB) {
	t.Helper()
	needRoot(t)
	if _, err := listenOnce(); err != nil {
		t.Fatal(err)
	}
}

// between4 is TCP with these flags.
func between4(src, dst string, from, to uint16, flags uint8) Input {
	return v4(ipv4{src: src, dst: dst, protocol: protoTCP}.wrap(flagged(from, to, flags)))
}

func between6(src, dst string, from, to uint16, flags uint8) Input {
	return v6(ipv6{src: src, dst: dst, next: protoTCP}.wrap(flagged(from, to, flags)))
}

func flagged(from, to uint16, flags uint8) []byte {
	packet := tcp(from, to)
	packet[13] = flags
	return packet
}

const (
	flagSYN    = 0x02
	flagACK    = 0x10
	flagSYNACK = flagSYN | flagACK
)

// A connection that n12, which is silent, begins with the API server of this node.
var (
	silentSYN    = between4("10.0.0.12", "10.0.0.1", 40000, 6443, flagSYN)
	silentACK    = between4("10.0.0.12", "10.0.0.1", 40000, 6443, flagACK)
	silentAnswer = between4("10.0.0.1", "10.0.0.12", 6443, 40000, flagSYNACK)
	silentSYN6   = between6("fd00::12", "fd00::1", 40000, 6443, flagSYN)
	silentReply6 = between6("fd00::1", "fd00::12", 6443, 40000, flagSYNACK)
	// decryptedSYN is the same out of the tunnel.
	decryptedSYN = raw(silentSYN.Frame[etherLen:])
)

func came(in Input) earlier { return earlier{fromNetdev, in} }

func silentSituations() []situation {
	both := func(s situation) []situation { return []situation{s, s.when(strict)} }
	after := func(s situation, before ...earlier) situation {
		s.before = before
		return s
	}
	comes := func(name string, in Input, before ...earlier) []situation {
		return both(after(ingress("silent peer: "+name, in, model.ReasonBootstrap), before...))
	}
	answered := func(name string, in Input, before ...earlier) []situation {
		return both(after(egress("silent peer: "+name, in, passes(model.ReasonBootstrap)), before...))
	}
	refused := func(name string, in Input, before ...earlier) []situation {
		s := situation{name: "silent peer, refused: " + name, program: fromNetdev, in: in, want: drop(in, model.ReasonClearFromPeer)}
		return []situation{after(s, before...).when(strict)}
	}
	encrypts := func(name string, in Input, before ...earlier) []situation {
		return both(after(egress("silent peer, encrypted: "+name, in, redirect), before...))
	}
	observed := after(egress("silent peer: answer in observe mode", silentAnswer, passes(model.ReasonWouldRedirect)), came(silentSYN))
	return slices.Concat(
		comes("begins", silentSYN), comes("begins, IPv6", silentSYN6), comes("begins again", silentSYN, came(silentSYN)),
		comes("goes on", silentACK, came(silentSYN)),
		comes("behind a tag", Input{Frame: tagged(typeIPv4, silentACK.Frame[etherLen:], typeVLAN)}, came(silentSYN)),
		comes("without link layer", decryptedSYN),
		answered("answer", silentAnswer, came(silentSYN)), answered("answer, IPv6", silentReply6, came(silentSYN6)),
		answered("answer behind a tag", Input{Frame: tagged(typeIPv4, silentAnswer.Frame[etherLen:], typeVLAN)}, came(silentSYN)),
		refused("goes on with what never began", silentACK),
		refused("goes on with what another began", between4("10.0.0.12", "10.0.0.1", 40001, 6443, flagACK), came(silentSYN)),
		refused("SYN and ACK", between4("10.0.0.12", "10.0.0.1", 40000, 6443, flagSYNACK)),
		refused("SYN and RST", between4("10.0.0.12", "10.0.0.1", 40000, 6443, flagSYN|0x04)),
		refused("SYN and FIN", between4("10.0.0.12", "10.0.0.1", 40000, 6443, flagSYN|0x01)),
		refused("another port", between4("10.0.0.12", "10.0.0.1", 40000, 6444, flagSYN)),
		refused("a server that does not listen", between4("10.0.0.12", "10.0.0.1", 40000, 2379, flagSYN)),
		refused("a server elsewhere", between4("10.0.0.12", "10.0.0.2", 40000, 6443, flagSYN)),
		refused("an answer of its own server", between4("10.0.0.12", "10.0.0.1", 6443, 40000, flagSYNACK)),
		refused("its pod", between4("10.244.12.5", "10.0.0.1", 40000, 6443, flagSYN)),
		refused("a fragment", v4(ipv4{src: "10.0.0.12", dst: "10.0.0.1", protocol: protoTCP, fragment: flagMore}.wrap(flagged(40000, 6443, flagSYN)))),
		refused("a header cut off", raw(silentSYN.Frame[etherLen:etherLen+20+19])),
		refused("of a connection that came encrypted since", silentACK, came(silentSYN), earlier{fromTunnel, decryptedSYN}),
		encrypts("answer to what never came", silentAnswer),
		encrypts("answer to what came encrypted", silentAnswer, earlier{fromTunnel, decryptedSYN}),
		encrypts("answer to what came in clear, and then encrypted", silentAnswer, came(silentSYN), earlier{fromTunnel, decryptedSYN}),
		encrypts("answer on another connection", between4("10.0.0.1", "10.0.0.12", 6443, 40001, flagACK), came(silentSYN)),
		encrypts("answer on another connection, IPv6", between6("fd00::1", "fd00::12", 6443, 40001, flagACK), came(silentSYN6)),
		encrypts("from another server", between4("10.0.0.1", "10.0.0.12", 2379, 40000, flagACK), came(silentSYN)),
		encrypts("to its server", between4("10.0.0.1", "10.0.0.12", 40000, 6443, flagSYN)),
		encrypts("a fragment of an answer", v4(ipv4{src: "10.0.0.1", dst: "10.0.0.12", protocol: protoTCP, fragment: flagMore}.wrap(flagged(6443, 40000, flagACK))), came(silentSYN)),
		[]situation{
			observed.when(observe),
			ingress("silent peer: SYN in observe mode", silentSYN, model.ReasonClearFromPeer).when(observe),
			situation{name: "peer that answers: SYN", program: fromNetdev, in: over4("10.0.0.2", "10.0.0.1", 40000, 6443),
				want: drop(over4("10.0.0.2", "10.0.0.1", 40000, 6443), model.ReasonClearFromPeer)}.when(strict),
		},
	)
}

// ofSilent says that the copies of the programs may remember the packet.
func ofSilent(p model.Packet) bool {
	lookup := lookupIn(testEntries())
	src, _ := lookup(p.Src)
	dst, _ := lookup(p.Dst)
	return src.Silent || dst.Silent
}

// connection is what may come and go between a silent peer and servers of this node, by all programs in any order.
func (g generator) connection() []call {
	known := newMemory()
	var calls []call
	var before []earlier
	six := g.chance(30)
	for range 2 + g.IntN(5) {
		c := call{program: pick(g, fromNetdev, fromNetdev, toNetdev, fromTunnel), known: known, before: slices.Clone(before)}
		ends, ports := [2]string{"10.0.0.12", "10.0.0.1"}, [2]uint16{pick(g, uint16(40000), 40000, 40001), pick(g, uint16(6443), 6443, 6443, 2379)}
		if six {
			ends = [2]string{"fd00::12", "fd00::1"}
		}
		if c.program == toNetdev {
			ends[0], ends[1], ports[0], ports[1] = ends[1], ends[0], ports[1], ports[0]
		}
		in := pick(g, between4, between4)
		if six {
			in = between6
		}
		c.in = in(ends[0], ends[1], ports[0], ports[1], pick(g, uint8(flagSYN), flagSYN, flagACK, flagSYNACK, uint8(g.Uint32())))
		if c.program == fromTunnel {
			c.in = raw(c.in.Frame[etherLen:])
		}
		calls = append(calls, c)
		before = append(before, earlier{c.program, c.in})
	}
	return calls
}

// TestRunningConnectionStaysEncrypted: whoever forges the beginning of a connection that there is does not get its
// answers in clear, however it was made.
func TestRunningConnectionStaysEncrypted(t *testing.T) {
	d := openCluster(t)
	config := testConfig()
	config.Mode = cluster.ModeStrict
	configure(t, d, config)
	loopbackUp(t)
	client, server := netip.MustParseAddr("127.0.0.12"), netip.MustParseAddr("127.0.0.1")
	apply(t, d, []PrefixEntry{
		{Prefix: cluster.HostPrefix(server), Entry: plan.Entry{Identity: 1, Flags: cluster.FlagNode | cluster.FlagLocal}},
		{Prefix: cluster.HostPrefix(client), Entry: plan.Entry{Endpoint: client, Key: 1, HasPair: true, Flags: cluster.FlagNode, Send: true, Enforce: true, Silent: true}},
	}, nil)
	listener, err := net.Listen("tcp4", netip.AddrPortFrom(server, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	at := netip.MustParseAddrPort(listener.Addr().String())
	if err := d.SetServers([]netip.AddrPort{at}); err != nil {
		t.Fatal(err)
	}
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(client, 0))}
	running, err := dialer.Dial("tcp4", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	port := running.LocalAddr().(*net.TCPAddr).AddrPort().Port()
	for _, test := range []struct {
		name    string
		port    uint16
		in, out model.Reason
	}{
		{"of the running one", port, model.ReasonClearFromPeer, model.ReasonRedirected},
		{"of a new one", port ^ 1, model.ReasonBootstrap, model.ReasonBootstrap},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := runKernel(t, d, fromNetdev, between4(client.String(), server.String(), test.port, at.Port(), flagSYN)); got.Reason != test.in {
				t.Errorf("its SYN in clear: %v, want %v", got.Reason, test.in)
			}
			if got := runKernel(t, d, toNetdev, between4(server.String(), client.String(), at.Port(), test.port, flagACK)); got.Reason != test.out {
				t.Errorf("the answer: %v, want %v", got.Reason, test.out)
			}
		})
	}
}

// TestSilenceBeginsAnew: what a peer began in clear while it was silent is not answered in clear when it is silent the
// next time, but an entry that is written again while it lasts changes nothing.
func TestSilenceBeginsAnew(t *testing.T) {
	d := openCluster(t)
	remember := func(clients ...string) {
		for _, client := range clients {
			key := flow{Server: listening[0].Addr().As16(), Client: netip.MustParseAddr(client).As16(), ServerPort: [2]byte{0x19, 0x2b}}
			if err := d.maps[mapFlows].Put(key, uint64(1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	clients := func() (list []string) {
		for key := range contents[flow, uint64](t, d, mapFlows) {
			list = append(list, key.Client.addr().String())
		}
		slices.Sort(list)
		return list
	}
	entry := func(prefix string) PrefixEntry {
		all := testEntries()
		return all[slices.IndexFunc(all, func(e PrefixEntry) bool { return e.Prefix.String() == prefix })]
	}
	remember("10.0.0.2", "10.0.0.12", "fd00::12")
	again, heard, other := entry("10.0.0.12/32"), entry("10.0.0.12/32"), entry("fd00::12/128")
	heard.Entry.Silent = false
	for _, test := range []struct {
		name  string
		write PrefixEntry
		want  []string
	}{
		{"written again", again, []string{"10.0.0.12", "10.0.0.2", "fd00::12"}},
		{"heard again", heard, []string{"10.0.0.12", "10.0.0.2", "fd00::12"}},
		{"silent again", again, []string{"10.0.0.2", "fd00::12"}},
		{"another address", other, []string{"10.0.0.2", "fd00::12"}},
	} {
		apply(t, d, []PrefixEntry{test.write}, nil)
		if got := clients(); !slices.Equal(got, test.want) {
			t.Errorf("%s: remembered %v, want %v", test.name, got, test.want)
		}
	}
}

// loopbackUp lets the namespace of the tests talk to itself.
func loopbackUp(t *testing.T) {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		t.Fatal(err)
	}
}
