package plan

// Bytes that WireGuard adds to a packet, besides the padding to 16 bytes.
const (
	ipv4Header      = 20
	ipv6Header      = 40
	udpHeader       = 8
	wireGuardHeader = 32 // type, receiver, counter, tag
	padding         = 16
	// minMTU is the least that IPv6 works with (RFC 8200 §5).
	minMTU = 1280
)

// InnerMTU returns the largest packet, in bytes, whose encrypted form fits into the underlay's MTU:
// 1440 for 1500 bytes over IPv4, 1408 over IPv6. It is at least 1280, since IPv6 stops below.
func InnerMTU(underlay int, overIPv6 bool) int {
	outer := ipv4Header
	if overIPv6 {
		outer = ipv6Header
	}
	inner := (underlay - outer - udpHeader - wireGuardHeader) / padding * padding
	return max(inner, minMTU)
}
