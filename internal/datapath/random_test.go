package datapath

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"warren/internal/cluster"
	"warren/internal/datapath/model"
	"warren/internal/plan"
)

// A normal test run compares so many packets, or as many as it can in that time; a number that
// is asked for is compared whatever it takes.
const (
	defaultPackets = 20_000
	defaultTime    = 20 * time.Second
)

// configurations is how many of them a run goes through.
const configurations = 25

// modesInTurn: left to chance, one of them is missing in one run of a thousand.
var modesInTurn = []cluster.Mode{cluster.ModePermissive, cluster.ModeStrict, cluster.ModePermissive, cluster.ModeObserve}

// TestRandomPacketsAgree passes random packets through the model and through the loaded programs. They
// are built around the addresses of the test's cluster, and some are damaged afterwards.
//
//	WARREN_FUZZ_PACKETS=1000000 go test -run TestRandomPacketsAgree   the long target
//	WARREN_FUZZ_SEED=42 go test -run TestRandomPacketsAgree           the same packets again
func TestRandomPacketsAgree(t *testing.T) {
	d := openCluster(t)
	seed := numberFromEnv(t, "WARREN_FUZZ_SEED", uint64(time.Now().UnixNano()))
	packets := int(numberFromEnv(t, "WARREN_FUZZ_PACKETS", 0))
	deadline := time.Now().Add(time.Hour)
	if packets == 0 {
		packets, deadline = defaultPackets, time.Now().Add(defaultTime)
	}
	t.Logf("seed %d", seed)
	g := generator{rand.New(rand.NewPCG(seed, 0))}
	seen := seenReasons{toNetdev: {}, fromNetdev: {}, fromTunnel: {}}
	rounds := 0
	for ; rounds < configurations && time.Now().Before(deadline); rounds++ {
		configure(t, d, g.configOtherThan(d.config, modesInTurn[rounds%len(modesInTurn)]))
		g.compareRound(t, d, packets/configurations, seen)
	}
	t.Logf("%d packets with %d configurations: %v", rounds*(packets/configurations), rounds, seen)
	if rounds == configurations && packets >= defaultPackets {
		seen.complete(t)
	}
}

// seenReasons counts the packets by what became of them.
type seenReasons map[model.Program]map[model.Reason]int

// complete fails when the generator never made a packet for one of the reasons.
func (seen seenReasons) complete(t *testing.T) {
	t.Helper()
	for _, program := range model.Programs() {
		for _, reason := range model.Reasons() {
			if slices.Contains(reason.Programs(), program) && elsewhere[program][reason] == "" && seen[program][reason] == 0 {
				t.Errorf("no packet showed %v of %v: the generator misses it", reason, program)
			}
		}
	}
}

// compareRound compares so many packets with one configuration, and then what was counted.
func (g generator) compareRound(t *testing.T, d *Datapath, packets int, seen seenReasons) {
	t.Helper()
	counted := tallies{}
	for packets > 0 {
		for _, c := range g.exchange() {
			if kernelRefuses(c.in) {
				continue
			}
			want := compareOne(t, d, c)
			seen[c.program][want.Reason]++
			counted.add(c, want)
			packets--
		}
	}
	counted.compare(t, d)
}

func numberFromEnv(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return number
}

// call is one packet for one program; known is what the model remembers of the exchange.
type call struct {
	program model.Program
	in      Input
	known   memory
	// before came right before, in the same exchange.
	before []earlier
}

// compareOne returns what the model says, and fails if the kernel does otherwise.
func compareOne(t *testing.T, d *Datapath, c call) model.Result {
	t.Helper()
	parsed, _ := model.Parse(c.in.Frame, model.Meta{L3: c.in.L3})
	want := runModel(c.program, c.in, d.config, c.known)
	told := want.Verdict == model.HandBack && c.program == toNetdev
	remembered := c.known.datagrams != nil || parsed.Fragment == model.LaterFragment || told || ofSilent(parsed)
	if len(c.before) == 0 && remembered {
		d.forget(t)
	}
	got := runKernel(t, d, c.program, c.in)
	if same(want, got) {
		return want
	}
	// The kernel forgets what it saw after a while, which may have passed on a busy machine.
	if len(c.before) > 0 && same(want, again(t, d, c)) {
		return want
	}
	t.Fatalf("%v with %+v: mark %#x l3 %v after %d packets, frame\n%s\nmodel  %s\nkernel %s",
		c.program, d.config, c.in.Mark, c.in.L3, len(c.before), hex.EncodeToString(c.in.Frame), show(want), show(got))
	return want
}

func same(a, b model.Result) bool {
	return a.Verdict == b.Verdict && a.Reason == b.Reason && a.Mark == b.Mark && a.Ifindex == b.Ifindex && bytes.Equal(a.Frame, b.Frame)
}

func again(t *testing.T, d *Datapath, c call) model.Result {
	t.Helper()
	for _, earlier := range c.before {
		runKernel(t, d, earlier.program, earlier.in)
	}
	return runKernel(t, d, c.program, c.in)
}

func show(r model.Result) string {
	return fmt.Sprintf("%v %v mark %#x ifindex %d frame %s", r.Verdict, r.Reason, r.Mark, r.Ifindex, hex.EncodeToString(r.Frame))
}

// tallies is what the copies of the programs should have counted.
type tallies map[variant]map[model.Reason]counterValue

func (all tallies) add(c call, want model.Result) {
	v := variant{program: c.program, l3: c.in.L3 && c.program != fromTunnel}
	if all[v] == nil {
		all[v] = map[model.Reason]counterValue{}
	}
	count := all[v][want.Reason]
	count.Packets++
	count.Bytes += uint64(len(c.in.Frame))
	all[v][want.Reason] = count
}

// compare allows for the few packets that were run again.
func (all tallies) compare(t *testing.T, d *Datapath) {
	t.Helper()
	for v, want := range all {
		got := countersOf(t, d, v.program, Input{L3: v.l3})
		for reason, count := range want {
			if more := got[reason].Packets - count.Packets; more > 5 || more == 0 && got[reason].Bytes != count.Bytes {
				t.Errorf("%s counted %v %+v, want %+v", v.name(), reason, got[reason], count)
			}
		}
	}
}

// kernelRefuses: BPF_PROG_RUN wants an Ethernet header, and a whole IP header behind the ethertypes
// of IP, wherever the program will look for them.
func kernelRefuses(in Input) bool {
	if len(in.Frame) < etherLen {
		return true
	}
	switch binary.BigEndian.Uint16(in.Frame[12:]) {
	case typeIPv4:
		return len(in.Frame) < etherLen+20
	case typeIPv6:
		return len(in.Frame) < etherLen+40
	}
	return false
}

// generator makes packets that are likely to meet a branch of the programs.
type generator struct{ *rand.Rand }

// chance is true in percent of the cases.
func (g generator) chance(percent int) bool { return g.IntN(100) < percent }

func pick[T any](g generator, choices ...T) T { return choices[g.IntN(len(choices))] }

func (g generator) config() model.Config {
	mask := pick(g, uint32(0x10), 0x10, 0xff, 0xf0000000)
	return model.Config{
		Exemptions: g.chance(50),
		Mark:       mask & 0x90000010, MarkMask: mask,
		Port:            pick(g, uint16(51880), 51880, 51878, 53),
		Tunnels:         [plan.Slots]uint32{pick(g, uint32(9), 9, 9, 0), pick(g, uint32(0), 10), pick(g, uint32(0), 11), pick(g, uint32(0), 12)},
		PrimaryUnderlay: pick(g, uint32(2), 5, 0, 77),
		InnerMTU:        pick(g, uint16(1440), 1408, 1280, 600, 0),
		Oversize:        pick(g, model.OversizeAuto, model.OversizeICMP, model.OversizeFragment),
		Ingress:         pick(g, model.IngressUnderlay, model.IngressUnderlay, model.IngressUnderlay, model.IngressDevice),
	}
}

// configOtherThan: programs that are not loaded again would go on counting.
func (g generator) configOtherThan(old model.Config, mode cluster.Mode) model.Config {
	for {
		config := g.config()
		config.Mode = mode
		if config != old {
			return config
		}
	}
}

const maxFragments = 3

// exchange is one packet, or the fragments of a datagram.
func (g generator) exchange() []call {
	program := pick(g, toNetdev, toNetdev, fromNetdev, fromTunnel)
	l3 := program == fromTunnel || g.chance(15)
	switch {
	case program == toNetdev && g.chance(5):
		return g.datagram(l3)
	case program == toNetdev && g.chance(5):
		return g.large(l3)
	case g.chance(3):
		return g.connection()
	case program != fromTunnel && g.chance(8):
		return []call{{program: program, in: Input{Frame: g.damage(g.frame(l3, g.toServer())), L3: l3}}}
	case program == fromTunnel && g.chance(2):
		return []call{{program: program, in: Input{Frame: g.damage(slices.Clone(probing)), Mark: g.mark(), L3: true}}}
	}
	return []call{{program: program, in: Input{Frame: g.damage(g.frame(l3, g.packet())), Mark: g.mark(), L3: l3}}}
}

// datagram is a first fragment that is likely to be WireGuard's, and later ones that may belong to it.
func (g generator) datagram(l3 bool) []call {
	known := newMemory()
	var calls []call
	var before []earlier
	six := g.chance(50)
	for i := range 2 + g.IntN(maxFragments-1) {
		in := Input{Frame: g.frame(l3, g.fragment(six, i > 0)), Mark: pick(g, 0x10, 0x10, 0x10, 0xffffffff, g.mark()), L3: l3}
		if kernelRefuses(in) {
			continue
		}
		calls = append(calls, call{program: toNetdev, in: in, known: known, before: slices.Clone(before)})
		before = append(before, earlier{toNetdev, in})
	}
	return calls
}

// large are two packets of a pod that perhaps do not fit, and whose sender is to be told once.
func (g generator) large(l3 bool) []call {
	packet := pick(g, narrow4, narrow6)(pick(g, 577, 1281, 1401, 1500))
	switch g.IntN(3) {
	case 0:
		packet = pick(g, from4(ipv4{protocol: 1, options: make([]byte, 4*g.IntN(11))}, string(byte(g.IntN(16)))+g.long()),
			from6(protoICMP, string(pick(g, byte(1), 127, 128, 137))+g.long()))
	case 1:
		packet[g.IntN(len(packet))] ^= 1 << g.IntN(8)
	}
	in := Input{Frame: g.frame(l3, packet), Mark: g.mark(), L3: l3}
	if kernelRefuses(in) {
		return nil
	}
	known := newMemory()
	return []call{{program: toNetdev, in: in, known: known}, {program: toNetdev, in: in, known: known, before: []earlier{{toNetdev, in}}}}
}

// toServer is between a server, or one beside it, and any of the cluster; or the answer.
func (g generator) toServer() []byte {
	server := pick(g, testServers()...).Addr()
	ends, ports := [2]string{server.String(), g.address(server.Is6())}, [2]uint16{6443, pick(g, 6443, uint16(g.Uint32()))}
	if g.chance(50) {
		ports = [2]uint16{ports[1], ports[0]}
	}
	from := g.IntN(2)
	packet := tcp(ports[from], ports[1-from])
	if server.Is6() {
		return ipv6{src: ends[from], dst: ends[1-from], next: protoTCP}.wrap(packet)
	}
	return ipv4{src: ends[from], dst: ends[1-from], protocol: protoTCP, fragment: pick(g, uint16(0), 0, 0, dontFragment, flagMore)}.wrap(packet)
}

func (g generator) fragment(six, later bool) []byte {
	id := pick(g, uint32(7), 7, 7, 8)
	payload := udp(pick(g, uint16(51880), 51880, 53), 51880, transportMessage)
	if !six {
		flags := uint16(flagMore)
		if later {
			flags = uint16(1 + g.IntN(0x1fff))
		}
		return ipv4{src: "10.0.0.1", dst: "10.0.0.2", protocol: protoUDP, id: uint16(id), fragment: flags}.wrap(payload)
	}
	offset := uint16(0)
	if later {
		offset = uint16(1+g.IntN(0x1fff)) << 3
	}
	return ipv6{src: "fd00::1", dst: "fd00::2", next: 44}.wrap(fragment6(protoUDP, offset, g.chance(50), id, payload))
}

func (g generator) mark() uint32 {
	return pick(g, 0, 0, 0x10, 0x10, 0x4010, 0xffffffff, g.Uint32())
}

// frame puts a packet behind a link layer header and perhaps tags.
func (g generator) frame(l3 bool, packet []byte) []byte {
	if l3 {
		return packet
	}
	etherType := uint16(typeIPv4)
	if len(packet) > 0 && packet[0]>>4 == 6 {
		etherType = typeIPv6
	}
	if g.chance(3) {
		etherType = pick(g, uint16(typeARP), typeIPv4, typeIPv6, uint16(g.Uint32()))
	}
	var tags []uint16
	for range pick(g, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 4) {
		tags = append(tags, pick(g, uint16(typeVLAN), typeQinQ))
	}
	return tagged(etherType, packet, tags...)
}

func (g generator) packet() []byte {
	if g.chance(50) {
		return g.ipv4()
	}
	return g.ipv6()
}

func (g generator) ipv4() []byte {
	header := ipv4{
		src: g.address(false), dst: g.address(false),
		protocol: g.protocol(), id: uint16(g.IntN(4)),
		fragment: pick(g, uint16(0), 0x4000, 0x4000, 0x4000, flagMore, 1, 0x1fff, uint16(g.Uint32())),
	}
	if g.chance(25) {
		header.options = make([]byte, 4*(1+g.IntN(10)))
	}
	return header.wrap(g.transport(header.protocol))
}

func (g generator) ipv6() []byte {
	next := g.protocol()
	payload := g.transport(next)
	for range pick(g, 0, 0, 0, 1, 1, 2, 3, 7, 8, 9) {
		switch kind := pick(g, uint8(0), 43, 60, 135, 139, 140, 51, 44); kind {
		case 44:
			payload = fragment6(next, pick(g, uint16(0), 0, uint16(g.Uint32())), g.chance(30), uint32(g.IntN(4)), payload)
			next = kind
		case 51:
			next, payload = kind, authentication(next, g.IntN(5), payload)
		default:
			next, payload = kind, extension(next, pick(g, 0, 0, 1, 4), payload)
		}
	}
	return ipv6{src: g.address(true), dst: g.address(true), next: next, hopLimit: pick(g, uint8(255), 255, 64, 254)}.wrap(payload)
}

func (g generator) protocol() uint8 {
	return pick(g, uint8(protoUDP), protoUDP, protoUDP, protoTCP, protoTCP, protoICMP, protoICMP, 1, 4, 50, 132, uint8(g.Uint32()))
}

func (g generator) transport(protocol uint8) []byte {
	switch protocol {
	case protoUDP:
		port := func() uint16 {
			return pick(g, uint16(51880), 51880, 51880+uint16(g.IntN(5)), 53, 161, uint16(g.Uint32()))
		}
		return udp(port(), port(), pick(g, transportMessage, transportMessage, "\x01\x00\x00\x00", "\x05\x00\x00\x00.", "\x04\x00\x01\x00.", "\x04", "", g.long(), g.long()))
	case protoICMP:
		return append(icmp6(pick(g, uint8(132), 133, 134, 135, 136, 137, 138, 128, 1)), pick(g, "", "", g.long())...)
	case 1:
		return append([]byte{uint8(g.IntN(16))}, g.long()...)
	}
	if g.chance(50) {
		port := func() uint16 { return pick(g, uint16(6443), 9100, uint16(g.Uint32())) }
		return tcp(port(), port())
	}
	return g.syn()
}

// long is more than some tunnels carry.
func (g generator) long() string { return strings.Repeat("x", 500+g.IntN(1200)) }

// syn is a TCP header with options, mostly of a SYN; its checksum is any.
func (g generator) syn() []byte {
	var options []byte
	for len(options) < g.IntN(44) {
		options = slices.Concat(options, pick(g,
			mss(pick(g, uint16(1460), 1440, 1400, 1380, 1379, 536, 65495, uint16(g.Uint32()))), mss(uint16(g.Uint32())),
			[]byte{1}, []byte{1}, []byte{4, 2}, []byte{3, 3, 7}, []byte{8, 10, 1, 2, 3, 4, 0, 0, 0, 0},
			[]byte{2, uint8(g.IntN(6)), 0xff}, []byte{uint8(g.Uint32()), uint8(g.IntN(8))}, []byte{0}))
	}
	packet := segment(pick(g, uint8(0x02), 0x12, 0xc2, 0x10), options[:min(len(options), 40)])
	packet[16], packet[17] = byte(g.Uint32()), byte(g.Uint32())
	if g.chance(10) {
		packet[12] = byte(g.Uint32())
	}
	return packet
}

// address is one of the cluster's, one beside it, or any other.
func (g generator) address(six bool) string {
	if g.chance(8) {
		if six && g.chance(50) {
			return fmt.Sprintf("fe80:7761:7272:656e::%d", g.IntN(4))
		}
		return g.anyAddress(six)
	}
	for {
		prefix := pick(g, testEntries()...).Prefix
		if prefix.Addr().Is6() != six {
			continue
		}
		inside := prefix.Addr().AsSlice()
		for i := range inside {
			host := byte(0xff)
			if covered := prefix.Bits() - 8*i; covered > 0 {
				host >>= min(covered, 8)
			}
			inside[i] |= pick(g, 0, host, byte(g.Uint32())&host)
		}
		addr, _ := netip.AddrFromSlice(inside)
		switch {
		case g.chance(3):
			addr = addr.Next()
		case g.chance(3):
			addr = addr.Prev()
		}
		return addr.String()
	}
}

func (g generator) anyAddress(six bool) string {
	if six && g.chance(10) { // an IPv4 address where none should be
		return "::ffff:" + g.address(false)
	}
	raw := make([]byte, 16)
	for i := range raw {
		raw[i] = byte(g.Uint32())
	}
	if !six {
		raw = raw[:4]
	}
	addr, _ := netip.AddrFromSlice(raw)
	return addr.String()
}

// damage cuts off or changes some packets.
func (g generator) damage(frame []byte) []byte {
	if g.chance(15) {
		frame = frame[:min(len(frame), etherLen+g.IntN(len(frame)))]
	}
	if g.chance(15) {
		for range 1 + g.IntN(3) {
			frame[g.IntN(len(frame))] ^= 1 << g.IntN(8)
		}
	}
	return frame
}

// FuzzPrograms lets Go's fuzzer find the bytes:
//
//	go test -run '^$' -fuzz FuzzPrograms ./internal/datapath
func FuzzPrograms(f *testing.F) {
	cannotRun := func(in Input) bool { return kernelRefuses(in) || len(in.Frame) > 2000 }
	for _, s := range situations() {
		if cannotRun(s.in) {
			continue
		}
		f.Add(uint8(s.program), s.in.L3, s.in.Mark, uint8(s.config().Mode), s.in.Frame)
	}
	modes := []cluster.Mode{cluster.ModeObserve, cluster.ModePermissive, cluster.ModeStrict}
	var datapaths []*Datapath
	for _, mode := range modes {
		config := testConfig()
		config.Mode = mode
		d := openCluster(f)
		configure(f, d, config)
		datapaths = append(datapaths, d)
	}
	f.Fuzz(func(t *testing.T, program uint8, l3 bool, mark uint32, mode uint8, frame []byte) {
		in := Input{Frame: frame, Mark: mark, L3: l3}
		if int(program) >= len(model.Programs()) || int(mode) >= len(modes) || cannotRun(in) {
			t.Skip()
		}
		compareOne(t, datapaths[mode], call{program: model.Program(program), in: in})
	})
}
