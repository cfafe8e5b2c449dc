package discovery

import (
	"fmt"
	"testing"
)

func TestReach(t *testing.T) {
	for _, test := range []struct{ server, want string }{
		{"https://192.0.2.7:6443", "[192.0.2.7:6443]"},
		{"https://192.0.2.7", "[192.0.2.7:443]"},
		{"http://192.0.2.7", "[192.0.2.7:80]"},
		{"192.0.2.7:6443", "[192.0.2.7:6443]"},
		{"https://[2001:db8::7]:6443/behind", "[[2001:db8::7]:6443]"},
		{"https://[::ffff:192.0.2.7]:6443", "[192.0.2.7:6443]"},
		{"https://127.0.0.1:6443", "[]"},
		{"https://no-such-name.invalid:6443", "[]"},
		{"https://192.0.2.7:70000", "[]"},
		{"https://%", "[]"},
		{"", "[]"},
	} {
		if got := fmt.Sprint(Reach(t.Context(), test.server)); got != test.want {
			t.Errorf("%q leads to %s, want %s", test.server, got, test.want)
		}
	}
}
