package probe

import (
	"encoding/binary"
	"errors"
	"fmt"

	"warren/internal/cluster"
)

// Kind of a message.
type Kind uint8

// The kinds.
const (
	Request Kind = 1 // asks for a reply
	Reply   Kind = 2 // answers a request, with its nonce
)

// Stance is what a node says of itself towards the receiver. The zero value promises nothing.
type Stance struct {
	// Confirmed: I have had an answer from you, and know that you decrypt what I send.
	Confirmed bool
	// Encrypting: my datapath sends everything to you through the tunnel, and goes on doing so.
	Encrypting bool
	// Enforcing: my datapath drops what comes from you in clear.
	Enforcing bool
	// Mode that I am in.
	Mode cluster.Mode
	// Epoch of the key of yours that I encrypt with; 0: not said.
	Epoch uint32
}

// Message is the content of a probe.
type Message struct {
	Kind Kind
	// Nonce of a request is its sender's choice; the reply has the same.
	Nonce uint64
	// Size is the length in bytes of the request's IP packet, also in the reply to it.
	Size uint16
	// FirstFragment is, in a reply, the length in bytes of the first fragment, outer IP header included, in
	// which encrypted packets arrived lately from the node that asks. 0: they arrived whole.
	FirstFragment uint16
	Stance
}

// The payload of the UDP datagram, all numbers in network byte order:
//
//	 0  magic "warr"
//	 4  version, 1
//	 5  kind
//	 6  flags: 1 confirmed, 2 encrypting, 4 enforcing
//	 7  mode
//	 8  nonce, 8 bytes
//	16  size, 2 bytes
//	18  first fragment, 2 bytes
//	20  epoch, 4 bytes
//	24  reserved, zero
//	48  end; zeroes up to the size of the packet
//
// Later versions keep these fields and their meaning, and give meaning to reserved bytes, flags, kinds,
// modes, and bytes behind the end of which zero says what this version does. A reader takes what it knows
// from any version and passes over the rest; a kind that it does not know it does not answer. What cannot
// be said so needs another magic.
const (
	magic      = "warr"
	version    = 1
	payloadLen = 48
)

const (
	flagConfirmed = 1 << iota
	flagEncrypting
	flagEnforcing
)

// ErrKind: the message is of a kind that a later version knows.
var ErrKind = errors.New("unknown kind of probe")

func (m Message) put(payload []byte) {
	copy(payload, magic)
	payload[4] = version
	payload[5] = byte(m.Kind)
	payload[6] = m.flags()
	payload[7] = byte(m.Mode)
	binary.BigEndian.PutUint64(payload[8:], m.Nonce)
	binary.BigEndian.PutUint16(payload[16:], m.Size)
	binary.BigEndian.PutUint16(payload[18:], m.FirstFragment)
	binary.BigEndian.PutUint32(payload[20:], m.Epoch)
}

func (s Stance) flags() byte {
	return bit(s.Confirmed, flagConfirmed) | bit(s.Encrypting, flagEncrypting) | bit(s.Enforcing, flagEnforcing)
}

func bit(set bool, flag byte) byte {
	if set {
		return flag
	}
	return 0
}

// parseMessage reads a payload of at least payloadLen bytes.
func parseMessage(payload []byte) (Message, error) {
	if string(payload[:len(magic)]) != magic || payload[4] == 0 {
		return Message{}, fmt.Errorf("payload begins with % x, not as a probe's", payload[:5])
	}
	m := Message{
		Kind:          Kind(payload[5]),
		Nonce:         binary.BigEndian.Uint64(payload[8:]),
		Size:          binary.BigEndian.Uint16(payload[16:]),
		FirstFragment: binary.BigEndian.Uint16(payload[18:]),
		Stance: Stance{
			Confirmed:  payload[6]&flagConfirmed != 0,
			Encrypting: payload[6]&flagEncrypting != 0,
			Enforcing:  payload[6]&flagEnforcing != 0,
			Mode:       cluster.Mode(payload[7]),
			Epoch:      binary.BigEndian.Uint32(payload[20:]),
		},
	}
	if m.Kind != Request && m.Kind != Reply {
		return m, fmt.Errorf("%w: %d", ErrKind, m.Kind)
	}
	return m, nil
}
