package userspace

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"testing"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"pgregory.net/rapid"
)

// loop is two Binds in a namespace of their own, one of which sends to the other.
type loop struct {
	from, into *bind
	to         conn.Endpoint
	receive    conn.ReceiveFunc
	buffers    [][]byte
	sizes      []int
	senders    []conn.Endpoint
}

func newLoop(t *testing.T, address string) *loop {
	t.Helper()
	narrowNamespace(t, 65536)
	l := &loop{buffers: make([][]byte, conn.IdealBatchSize), sizes: make([]int, conn.IdealBatchSize), senders: make([]conn.Endpoint, conn.IdealBatchSize)}
	for i := range l.buffers {
		l.buffers[i] = make([]byte, device.MaxMessageSize)
	}
	l.from, _ = openBind(t)
	l.into = &bind{}
	receivers, port, err := l.into.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.into.Close() })
	l.receive = receivers[0]
	if address == "::1" {
		l.receive = receivers[1]
	}
	l.to = must(l.from.ParseEndpoint(net.JoinHostPort(address, fmt.Sprint(port))))(t)
	return l
}

// pass sends messages of these sizes in one batch, and returns what arrives of it.
func (l *loop) pass(t rapid.TB, sizes []int) (sent, got [][]byte) {
	t.Helper()
	for i, size := range sizes {
		sent = append(sent, bytes.Repeat([]byte{byte(i + 1)}, size))
	}
	if err := l.from.Send(sent, l.to); err != nil {
		t.Fatal(err)
	}
	for len(got) < len(sent) {
		n, err := l.receive(l.buffers, l.sizes, l.senders)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			got = append(got, bytes.Clone(l.buffers[i][:l.sizes[i]]))
		}
	}
	return sent, got
}

func repeat(n, size int) []int { return slices.Repeat([]int{size}, n) }

// TestReceive: the messages are the ones that were sent, whatever came before and how it was laid out.
func TestReceive(t *testing.T) {
	tests := []struct {
		name    string
		batches [][]int
	}{
		{"single ones", [][]int{{32}, {1452}, {9000}, {65507}, {1}}},
		{"many of one size, again and again", [][]int{repeat(40, 1452), repeat(40, 1452), repeat(40, 1452)}},
		{"the last of many is shorter", [][]int{append(repeat(40, 1452), 100), append(repeat(40, 1452), 100)}},
		{"another size after many", [][]int{repeat(40, 1452), repeat(40, 1400), repeat(20, 1472)}},
		{"many small ones after large ones", [][]int{repeat(40, 1452), repeat(64, 96), repeat(64, 96)}},
		{"a large one after many small ones", [][]int{repeat(64, 96), {1452}, repeat(64, 96), {65507}}},
		{"larger than all that the slots hold", [][]int{repeat(64, 10), repeat(44, 1472)}},
		{"a whole batch", [][]int{repeat(128, 1452), repeat(128, 500)}},
		{"few, which are no sign of more", [][]int{repeat(2, 1452), repeat(7, 1452), repeat(3, 1000)}},
	}
	for _, address := range []string{"127.0.0.1", "::1"} {
		for _, test := range tests {
			t.Run(address+"/"+test.name, func(t *testing.T) {
				l := newLoop(t, address)
				for _, sizes := range test.batches {
					if sent, got := l.pass(t, sizes); !slices.EqualFunc(sent, got, bytes.Equal) {
						t.Errorf("sent %d messages of %v bytes, got others", len(sent), sizes)
					}
				}
			})
		}
	}
}

// TestReceiveAnything is TestReceive with random batches.
func TestReceiveAnything(t *testing.T) {
	l := newLoop(t, "127.0.0.1")
	size := rapid.OneOf(rapid.SampledFrom([]int{32, 96, 1452, 1472}), rapid.IntRange(1, 2000))
	batch := rapid.Custom(func(t *rapid.T) []int {
		sizes := repeat(rapid.IntRange(0, 100).Draw(t, "train"), size.Draw(t, "size"))
		return append(sizes, rapid.SliceOfN(size, 1, 8).Draw(t, "others")...)
	})
	rapid.Check(t, func(rt *rapid.T) {
		sizes := batch.Draw(rt, "batch")
		if sent, got := l.pass(rt, sizes); !slices.EqualFunc(sent, got, bytes.Equal) {
			rt.Errorf("sent %d messages of %v bytes, got others", len(sent), sizes)
		}
	})
}

// TestManyTogether: what leaves together arrives together, and the second time in place; else nothing were gained.
func TestManyTogether(t *testing.T) {
	l := newLoop(t, "127.0.0.1")
	socket := newReceiver(l.into.ipv4.Load())
	for round := range 2 {
		if err := l.from.Send(messages(repeat(20, 1452)...), l.to); err != nil {
			t.Fatal(err)
		}
		total, size, err := socket.read(l.buffers)
		if err != nil || total != 20*1452 || size != 1452 {
			t.Fatalf("%d bytes in messages of %d, %v; want 20 of 1452", total, size, err)
		}
		if got, want := socket.inPlace(total, size), round == 1; got != want {
			t.Errorf("round %d: in place %v, want %v", round, got, want)
		}
		socket.expect(total/size, size)
	}
}

// TestSenders: every message is of the one who sent it.
func TestSenders(t *testing.T) {
	l := newLoop(t, "127.0.0.1")
	for range 3 {
		other, port := openBind(t)
		if err := other.Send(messages(100), l.to); err != nil {
			t.Fatal(err)
		}
		n, err := l.receive(l.buffers, l.sizes, l.senders)
		if err != nil || n != 1 {
			t.Fatalf("%d messages, %v", n, err)
		}
		if got, want := l.senders[0].DstToString(), fmt.Sprintf("127.0.0.1:%d", port); got != want {
			t.Errorf("from %s, want %s", got, want)
		}
	}
}
