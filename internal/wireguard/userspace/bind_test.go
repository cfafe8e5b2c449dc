package userspace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
)

// narrowNamespace puts the test into a network namespace of its own whose loopback carries so many bytes.
func narrowNamespace(t *testing.T, mtu int) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	setMTU(t, mtu)
}

func setMTU(t *testing.T, mtu int) {
	t.Helper()
	if output, err := exec.Command("ip", "link", "set", "lo", "mtu", fmt.Sprint(mtu), "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

// messages of these sizes, each of one letter.
func messages(sizes ...int) [][]byte {
	var all [][]byte
	for i, size := range sizes {
		// Room behind, as the engine's buffers have: the stock Bind puts a batch together there.
		all = append(all, append(make([]byte, 0, 65535), bytes.Repeat([]byte{byte('a' + i)}, size)...))
	}
	return all
}

// arrived returns the different messages that come until there are so many, by their letter.
func arrived(t *testing.T, socket *net.UDPConn, want int) map[string]int {
	t.Helper()
	sizes := map[string]int{}
	buffer := make([]byte, 1<<16)
	_ = socket.SetReadDeadline(time.Now().Add(10 * time.Second))
	for len(sizes) < want {
		n, err := socket.Read(buffer)
		if err != nil {
			t.Fatalf("%v arrived, then: %v", sizes, err)
		}
		sizes[string(buffer[:1])] = n
	}
	return sizes
}

func openBind(t *testing.T) (*bind, uint16) {
	t.Helper()
	b := &bind{}
	_, port, err := b.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if err := b.SetMark(0x10); err != nil {
		t.Fatal(err)
	}
	return b, port
}

func listenAt(t *testing.T, address string) (*net.UDPConn, string) {
	t.Helper()
	socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return socket, socket.LocalAddr().String()
}

// TestBatchWithLargeMessages: whatever is in a batch, all of it arrives.
func TestBatchWithLargeMessages(t *testing.T) {
	tests := []struct {
		name  string
		sizes []int
	}{
		{"all fit", []int{1400, 1400, 1400}},
		{"all are too large", []int{1520, 1520, 1520, 1520}},
		{"the first is too large", []int{2000, 1400, 1400, 100}},
		{"one in the middle is too large", []int{1400, 1400, 1520, 1400, 1400}},
		{"the last is the largest", []int{100, 1400, 65000}},
	}
	for _, address := range []string{"127.0.0.1", "::1"} {
		for _, test := range tests {
			t.Run(address+"/"+test.name, func(t *testing.T) {
				narrowNamespace(t, 1500)
				b, _ := openBind(t)
				socket, at := listenAt(t, address)
				peer, err := b.ParseEndpoint(at)
				if err != nil {
					t.Fatal(err)
				}
				want := map[string]int{}
				for i, size := range test.sizes {
					want[string(rune('a'+i))] = size
				}
				for round := range 2 { // before and after the path is known
					if err := b.Send(messages(test.sizes...), peer); err != nil {
						t.Errorf("round %d: %v", round, err)
					}
					if diff := cmp.Diff(want, arrived(t, socket, len(want))); diff != "" {
						t.Errorf("round %d (-want +got):\n%s", round, diff)
					}
				}
			})
		}
	}
}

// TestStockBindLosesTheBatch: what the test above guards against still happens without it.
func TestStockBindLosesTheBatch(t *testing.T) {
	narrowNamespace(t, 1500)
	stock := conn.NewDefaultBind()
	if _, _, err := stock.Open(0); err != nil {
		t.Fatal(err)
	}
	defer stock.Close()
	_, at := listenAt(t, "127.0.0.1")
	peer, err := stock.ParseEndpoint(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := stock.Send(messages(1520, 1520, 1520), peer); !tooLarge(err) {
		t.Errorf("the stock Bind: %v, want %v", err, unix.EMSGSIZE)
	}
}

// TestPathBecomesNarrower: what is known of a path may be wrong by now.
func TestPathBecomesNarrower(t *testing.T) {
	narrowNamespace(t, 1500)
	b, _ := openBind(t)
	socket, at := listenAt(t, "127.0.0.1")
	peer, err := b.ParseEndpoint(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, mtu := range []int{1500, 1400} {
		setMTU(t, mtu)
		if err := b.Send(messages(1450, 1450, 1520, 1450), peer); err != nil {
			t.Errorf("MTU %d: %v", mtu, err)
		}
		want := map[string]int{"a": 1450, "b": 1450, "c": 1520, "d": 1450}
		if diff := cmp.Diff(want, arrived(t, socket, len(want))); diff != "" {
			t.Errorf("MTU %d (-want +got):\n%s", mtu, diff)
		}
	}
}

// TestTrain: what is too large leaves alone, the others together as far as the kernel can cut them apart again.
func TestTrain(t *testing.T) {
	many := slices.Repeat([]int{1000}, 100)
	tests := []struct {
		name  string
		sizes []int
		limit int
		want  []int
	}{
		{"one", []int{10}, noLimit, []int{1}},
		{"all of one size", []int{10, 10, 10}, noLimit, []int{3}},
		{"the last is shorter", []int{10, 10, 5}, noLimit, []int{3}},
		{"a shorter one ends a train", []int{10, 5, 5, 10}, noLimit, []int{2, 1, 1}},
		{"none is too large by a byte", []int{30, 30}, 30, []int{2}},
		{"none fits", []int{30, 30, 30}, 29, []int{1, 1, 1}},
		{"one in the middle is too large", []int{10, 10, 40, 10, 10}, 30, []int{2, 1, 2}},
		{"no more than 64", many, noLimit, []int{64, 36}},
		{"no more than a packet", slices.Repeat([]int{20_000}, 4), noLimit, []int{3, 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []int
			for left := messages(test.sizes...); len(left) > 0; {
				n := train(left, test.limit)
				got, left = append(got, n), left[n:]
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("trains (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOneFailureStopsNothing: the error is told, and the rest is sent.
func TestOneFailureStopsNothing(t *testing.T) {
	narrowNamespace(t, 1500)
	b, _ := openBind(t)
	socket, at := listenAt(t, "127.0.0.1")
	if err := b.Send(messages(65_530, 20, 10), must(b.ParseEndpoint(at))(t)); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("%v, want %v", err, unix.EMSGSIZE)
	}
	if diff := cmp.Diff(map[string]int{"b": 20, "c": 10}, arrived(t, socket, 2)); diff != "" {
		t.Errorf("arrived (-want +got):\n%s", diff)
	}
}

// TestMarkAndPort: what is sent alone has the mark and the port of the others.
func TestMarkAndPort(t *testing.T) {
	narrowNamespace(t, 1500)
	b, port := openBind(t)
	socket, at := listenAt(t, "127.0.0.1")
	if err := control(must(socket.SyscallConn())(t), func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVMARK, 1)
	}); err != nil {
		t.Fatal(err)
	}
	if err := b.Send(messages(1400, 2000, 2000), must(b.ParseEndpoint(at))(t)); err != nil {
		t.Fatal(err)
	}
	buffer, oob := make([]byte, 1<<16), make([]byte, 256)
	_ = socket.SetReadDeadline(time.Now().Add(10 * time.Second))
	for range 3 {
		_, oobn, _, from, err := socket.ReadMsgUDPAddrPort(buffer, oob)
		if err != nil {
			t.Fatal(err)
		}
		mark, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil || len(mark) != 1 || binary.NativeEndian.Uint32(mark[0].Data) != 0x10 {
			t.Errorf("mark %v, %v; want 0x10", mark, err)
		}
		if from.Port() != port {
			t.Errorf("from %v, want port %d", from, port)
		}
	}
}

// TestOpen: both families have one port; what is open is not opened again; what is closed can be.
func TestOpen(t *testing.T) {
	narrowNamespace(t, 1500)
	b, port := openBind(t)
	if got := b.ipv6.Load().LocalAddr().(*net.UDPAddr).Port; got != int(port) {
		t.Errorf("IPv6 has port %d, IPv4 %d", got, port)
	}
	if _, _, err := b.Open(0); !errors.Is(err, conn.ErrBindAlreadyOpen) {
		t.Errorf("open again: %v, want %v", err, conn.ErrBindAlreadyOpen)
	}
	other := &bind{}
	if _, _, err := other.Open(port); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a port that is taken: %v, want %v", err, unix.EADDRINUSE)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, got, err := b.Open(port); got != port || err != nil {
		t.Errorf("open after close: port %d, %v; want %d", got, err, port)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Send(messages(10), must(b.ParseEndpoint("127.0.0.1:1"))(t)); !errors.Is(err, unix.EAFNOSUPPORT) {
		t.Errorf("send while closed: %v, want %v", err, unix.EAFNOSUPPORT)
	}
}

// TestCloseEndsReceive: the engine waits for its readers, which end with the error that it knows.
func TestCloseEndsReceive(t *testing.T) {
	narrowNamespace(t, 1500)
	b := &bind{}
	receivers, _, err := b.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, len(receivers))
	for _, receive := range receivers {
		go func() {
			buffers := [][]byte{make([]byte, device.MaxMessageSize)}
			_, err := receive(buffers, make([]int, 1), make([]conn.Endpoint, 1))
			ended <- err
		}()
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	for range receivers {
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%v, want %v", err, net.ErrClosed)
		}
	}
}

// TestWithoutSegmentation: on a device that cannot, messages leave one by one.
func TestWithoutSegmentation(t *testing.T) {
	narrowNamespace(t, 1500)
	b, _ := openBind(t)
	b.ipv4.Load().segments.Store(false)
	socket, at := listenAt(t, "127.0.0.1")
	if err := b.Send(messages(100, 100, 50), must(b.ParseEndpoint(at))(t)); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(map[string]int{"a": 100, "b": 100, "c": 50}, arrived(t, socket, 3)); diff != "" {
		t.Errorf("arrived (-want +got):\n%s", diff)
	}
}

func TestEndpoint(t *testing.T) {
	b := &bind{}
	for _, text := range []string{"192.0.2.1:51880", "[2001:db8::1]:51880"} {
		e := must(b.ParseEndpoint(text))(t)
		stock := must(conn.NewDefaultBind().ParseEndpoint(text))(t)
		e.ClearSrc()
		if e.DstToString() != text || e.DstIP() != stock.DstIP() || !bytes.Equal(e.DstToBytes(), stock.DstToBytes()) || e.SrcIP().IsValid() || e.SrcToString() != "" {
			t.Errorf("%s: %v", text, e)
		}
		if err := b.Send(nil, stock); !errors.Is(err, conn.ErrWrongEndpointType) {
			t.Errorf("another Bind's endpoint: %v, want %v", err, conn.ErrWrongEndpointType)
		}
	}
	if _, err := b.ParseEndpoint("192.0.2.1"); err == nil {
		t.Error("an address without a port was accepted")
	}
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
