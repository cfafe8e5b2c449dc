package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// trafficControl implements Filters for the tests by talking to the kernel: as much of rtnetlink
// (linux/rtnetlink.h, linux/pkt_cls.h) as three methods need.
type trafficControl struct{ socket int }

func newTrafficControl(t testing.TB) trafficControl {
	t.Helper()
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(socket) })
	return trafficControl{socket}
}

const (
	clsactParent   = 0xfffffff1
	clsactHandle   = 0xffff0000
	parentIngress  = 0xfffffff2
	parentEgress   = 0xfffffff3
	attrKind       = 1  // TCA_KIND
	attrOptions    = 2  // TCA_OPTIONS
	attrBPFFD      = 6  // TCA_BPF_FD
	attrBPFName    = 7  // TCA_BPF_NAME
	attrBPFFlags   = 8  // TCA_BPF_FLAGS
	attrBPFID      = 11 // TCA_BPF_ID
	flagDirect     = 1  // TCA_BPF_FLAG_ACT_DIRECT
	trafficMessage = 20
)

// request is a message about a filter or qdisc (struct tcmsg). The info of a filter is its priority in the
// upper half, and its protocol in network byte order in the lower.
type request struct {
	kind, flags          uint16
	ifindex              uint32
	handle, parent, info uint32
	attributes           []byte
}

// attribute is a netlink attribute, padded to 4 bytes.
func attribute(kind uint16, data []byte) []byte {
	a := binary.NativeEndian.AppendUint16(nil, uint16(4+len(data)))
	a = append(binary.NativeEndian.AppendUint16(a, kind), data...)
	return append(a, make([]byte, (4-len(a)%4)%4)...)
}

func word(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// The priorities of filters, in the upper half of their info; they are for all protocols.
const (
	allProtocols = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
	early        = 1<<16 | allProtocols
	late         = 49000<<16 | allProtocols
)

// place is where a filter of ours is: first on ingress, late on egress.
func place(egress bool) (parent, info uint32) {
	if egress {
		return parentEgress, late
	}
	return parentIngress, early
}

func (c trafficControl) Replace(ifindex uint32, egress bool, fd int, name string) error {
	parent, info := place(egress)
	return c.attach(request{ifindex: ifindex, parent: parent, info: info}, fd, name)
}

func (c trafficControl) attach(at request, fd int, name string) error {
	qdisc := request{kind: unix.RTM_NEWQDISC, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL, ifindex: at.ifindex,
		handle: clsactHandle, parent: clsactParent, attributes: attribute(attrKind, []byte("clsact\x00"))}
	if _, err := c.do(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add clsact: %w", err)
	}
	options := slices.Concat(attribute(attrBPFFD, word(uint32(fd))), attribute(attrBPFName, []byte(name+"\x00")),
		attribute(attrBPFFlags, word(flagDirect)))
	at.kind, at.flags, at.handle = unix.RTM_NEWTFILTER, unix.NLM_F_CREATE, 1
	at.attributes = slices.Concat(attribute(attrKind, []byte("bpf\x00")), attribute(attrOptions, options))
	_, err := c.do(at)
	return err
}

func (c trafficControl) Remove(ifindex uint32, egress bool, name string) error {
	if _, found, err := c.Has(ifindex, egress, name); err != nil || !found {
		return err
	}
	parent, info := place(egress)
	_, err := c.do(request{kind: unix.RTM_DELTFILTER, ifindex: ifindex, handle: 1, parent: parent, info: info,
		attributes: attribute(attrKind, []byte("bpf\x00"))})
	return err
}

// attachEgress attaches a program of somebody else's, before Warren's if that is attached by clsact too.
func (c trafficControl) attachEgress(t testing.TB, device string, program *ebpf.Program) {
	t.Helper()
	if err := c.attach(request{ifindex: indexOf(t, device), parent: parentEgress, info: early}, program.FD(), "other"); err != nil {
		t.Fatal(err)
	}
}

func (c trafficControl) detachEgress(t testing.TB, device string) {
	t.Helper()
	_, err := c.do(request{kind: unix.RTM_DELTFILTER, ifindex: indexOf(t, device), handle: 1, parent: parentEgress, info: early,
		attributes: attribute(attrKind, []byte("bpf\x00"))})
	if err != nil {
		t.Fatal(err)
	}
}

// removeClsact takes the qdisc away, with everything on it.
func (c trafficControl) removeClsact(t testing.TB, ifindex uint32) {
	t.Helper()
	if _, err := c.do(request{kind: unix.RTM_DELQDISC, ifindex: ifindex, handle: clsactHandle, parent: clsactParent}); err != nil {
		t.Fatal(err)
	}
}

func (c trafficControl) Has(ifindex uint32, egress bool, name string) (progID uint32, found bool, err error) {
	parent, _ := place(egress)
	messages, err := c.do(request{kind: unix.RTM_GETTFILTER, flags: unix.NLM_F_DUMP, ifindex: ifindex, parent: parent})
	if err != nil {
		return 0, false, err
	}
	for _, message := range messages {
		options := attributesOf(attributesOf(message[trafficMessage:])[attrOptions])
		if strings.TrimRight(string(options[attrBPFName]), "\x00") == name {
			return binary.NativeEndian.Uint32(options[attrBPFID]), true, nil
		}
	}
	return 0, false, nil
}

func attributesOf(data []byte) map[uint16][]byte {
	all := map[uint16][]byte{}
	for len(data) >= 4 {
		length := int(binary.NativeEndian.Uint16(data))
		all[binary.NativeEndian.Uint16(data[2:])] = data[4:length]
		data = data[min((length+3)&^3, len(data)):]
	}
	return all
}

// do sends a request and returns the bodies of the answers.
func (c trafficControl) do(r request) ([][]byte, error) {
	body := slices.Concat(make([]byte, 4), word(r.ifindex), word(r.handle), word(r.parent), word(r.info), r.attributes)
	message := word(uint32(unix.SizeofNlMsghdr + len(body)))
	message = binary.NativeEndian.AppendUint16(message, r.kind)
	message = binary.NativeEndian.AppendUint16(message, unix.NLM_F_REQUEST|unix.NLM_F_ACK|r.flags)
	message = append(append(message, make([]byte, 8)...), body...)
	if err := unix.Sendto(c.socket, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	var answers [][]byte
	for {
		buffer := make([]byte, 1<<16)
		n, _, err := unix.Recvfrom(c.socket, buffer, 0)
		if err != nil {
			return nil, err
		}
		for data := buffer[:n]; len(data) >= unix.SizeofNlMsghdr; {
			length, kind := int(binary.NativeEndian.Uint32(data)), binary.NativeEndian.Uint16(data[4:])
			switch payload := data[unix.SizeofNlMsghdr:length]; kind {
			case unix.NLMSG_DONE:
				return answers, nil
			case unix.NLMSG_ERROR: // also the acknowledgement, with 0
				if code := int32(binary.NativeEndian.Uint32(payload)); code != 0 {
					return nil, unix.Errno(-code)
				}
				return answers, nil
			default:
				answers = append(answers, payload)
			}
			data = data[min((length+3)&^3, len(data)):]
		}
	}
}
