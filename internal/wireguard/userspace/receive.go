package userspace

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
)

// receiver reads one socket for the engine, which gives it a buffer for each message. The kernel delivers up
// to 64 messages of one size as one piece (UDP_GRO). While such pieces come, each buffer is offered to it only
// up to that size, so that every message falls into its own and need not be copied:
//
//	buffers     │1452├──────┤│1452├──────┤│1452├──────┤ … 64 of them, then the rest
//	piece       └─┬──┘       └─┬──┘       └┬─┘            3 messages: two of 1452 bytes and a shorter one
//
// A piece of another size is put together again and copied from there. The kernel takes microseconds to look
// at 64 buffers, and somebody may wait for a single message: while those come, one whole buffer is offered.
type receiver struct {
	socket *udpSocket
	// slots are how many buffers were offered, size is up to what.
	slots, size int
	// rest gets what the slots do not hold, at its place in the piece.
	rest [maxPiece]byte
	peer *endpoint // who sent the last piece

	header  unix.Msghdr
	parts   [maxSegments + 1]unix.Iovec
	from    unix.RawSockaddrInet6 // has room for both families
	control [64]byte
}

const (
	// maxPiece is more than the kernel delivers at once.
	maxPiece = 1 << 16
	// manyMessages in a piece announce another one.
	manyMessages = 8
)

func newReceiver(socket *udpSocket) *receiver {
	r := &receiver{socket: socket}
	r.expect(1, 0)
	return r
}

// expect prepares for a piece like the last one, of n messages of a size.
func (r *receiver) expect(n, size int) {
	if n >= manyMessages {
		r.slots, r.size = maxSegments, size
	} else {
		r.slots, r.size = 1, device.MaxMessageSize
	}
}

// receive implements conn.ReceiveFunc. The engine's buffers are 128 of device.MaxMessageSize bytes.
func (r *receiver) receive(buffers [][]byte, sizes []int, from []conn.Endpoint) (n int, err error) {
	total, size, err := r.read(buffers)
	if err != nil {
		return 0, err
	}
	if !r.inPlace(total, size) {
		r.rearrange(buffers, total, size)
	}
	for ; total > 0 && n < len(buffers); n++ {
		sizes[n], from[n] = min(size, total), r.peer
		total -= sizes[n]
	}
	r.expect(n, size)
	return n, nil
}

// read waits for a piece and spreads it over the buffers. It returns the piece's length and that of the
// messages in it, of which the last may be shorter.
func (r *receiver) read(buffers [][]byte) (total, size int, err error) {
	r.offer(buffers)
	var errno unix.Errno
	problem := r.socket.raw.Read(func(fd uintptr) bool {
		total, errno = r.receiveMessage(fd)
		return errno != unix.EAGAIN
	})
	if problem != nil { // closed
		return 0, 0, problem
	}
	if errno != 0 {
		return 0, 0, fmt.Errorf("receive a datagram: %w", os.NewSyscallError("recvmsg", errno))
	}
	r.remember()
	if size = groSize(r.control[:r.header.Controllen]); size == 0 {
		size = total
	}
	return total, size, nil
}

// offer tells the kernel where a piece goes.
func (r *receiver) offer(buffers [][]byte) {
	part := func(i int, to []byte) {
		r.parts[i].Base = &to[0]
		r.parts[i].SetLen(len(to))
	}
	for i := range r.slots {
		part(i, buffers[i][:r.size])
	}
	part(r.slots, r.rest[min(r.slots*r.size, maxPiece-1):])
	r.header.Iov = &r.parts[0]
	r.header.SetIovlen(r.slots + 1)
}

// receiveMessage is recvmsg(2) without what the wrapper in x/sys/unix adds: allocations, and a question to the
// kernel about the kind of socket. The receiver is on the heap, where Go moves nothing.
func (r *receiver) receiveMessage(fd uintptr) (int, unix.Errno) {
	r.header.Name, r.header.Namelen = (*byte)(unsafe.Pointer(&r.from)), unix.SizeofSockaddrInet6
	r.header.Control = &r.control[0]
	r.header.SetControllen(len(r.control))
	for {
		n, _, errno := unix.Syscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&r.header)), 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// inPlace reports whether each message of a piece is in a buffer of its own.
func (r *receiver) inPlace(total, size int) bool {
	if total <= size { // a single one
		return total <= r.size
	}
	return size == r.size && total <= r.slots*r.size
}

// rearrange gives each message of a piece a buffer of its own.
func (r *receiver) rearrange(buffers [][]byte, total, size int) {
	piece := buffers[0]
	if r.slots > 1 {
		piece = r.rest[:]
		for i := 0; i < r.slots && i*r.size < total; i++ {
			copy(piece[i*r.size:], buffers[i][:r.size])
		}
	}
	for i := 0; i*size < total && i < len(buffers); i++ {
		copy(buffers[i], piece[i*size:min((i+1)*size, total)])
	}
}

// remember notes who sent a piece. The packets of one peer share an endpoint.
func (r *receiver) remember() {
	at := netip.AddrPortFrom(netip.AddrFrom16(r.from.Addr), port(r.from.Port))
	if r.from.Family == unix.AF_INET {
		from := (*unix.RawSockaddrInet4)(unsafe.Pointer(&r.from))
		at = netip.AddrPortFrom(netip.AddrFrom4(from.Addr), port(from.Port))
	}
	if r.peer == nil || r.peer.AddrPort != at {
		r.peer = &endpoint{at}
	}
}

// port turns round what the kernel has in the order of the network.
func port(raw uint16) uint16 {
	var bytes [2]byte
	binary.NativeEndian.PutUint16(bytes[:], raw)
	return binary.BigEndian.Uint16(bytes[:])
}

// groSize returns the size of the messages in a piece (udp(7), UDP_GRO: an int), 0 for a single one.
func groSize(control []byte) int {
	for len(control) > unix.SizeofCmsghdr {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return 0
		}
		if header.Level == unix.IPPROTO_UDP && header.Type == unix.UDP_GRO && len(data) >= 4 {
			return int(binary.NativeEndian.Uint32(data))
		}
		control = rest
	}
	return 0
}
