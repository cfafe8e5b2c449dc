package plan

import "testing"

func TestInnerMTU(t *testing.T) {
	for _, test := range []struct {
		name     string
		underlay int
		overIPv6 bool
		want     int
	}{
		{"Ethernet over IPv4", 1500, false, 1440},
		{"Ethernet over IPv6", 1500, true, 1408},
		{"a cloud's 1400 over IPv4", 1400, false, 1328},
		{"jumbo frames", 9000, false, 8928},
		{"never below what IPv6 needs", 1300, true, 1280},
	} {
		if got := InnerMTU(test.underlay, test.overIPv6); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}
