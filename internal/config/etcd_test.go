package config

import (
	"strings"
	"testing"
)

// TestEtcdByFlags: flags are set one by one, in the order of the keys, and what they say together is judged once
// all of it is there.
func TestEtcdByFlags(t *testing.T) {
	const member = "https://192.0.2.1:2379"
	for _, test := range []struct {
		name    string
		flags   [][2]string
		problem string // part of it
	}{
		{"engine and members", [][2]string{{"discovery", "etcd"}, {"etcd.endpoints", member + ",http://[2001:db8::1]:2379"}}, ""},
		{"no members", [][2]string{{"discovery", "etcd"}}, "etcd.endpoints: discovery by etcd needs to know where it is; name its members"},
		{"members, and another engine", [][2]string{{"etcd.endpoints", member}}, ""},
		{"no URL", [][2]string{{"etcd.endpoints", "192.0.2.1:2379"}}, `etcd.endpoints[0]: "192.0.2.1:2379" is not the URL of a member`},
		{"no port", [][2]string{{"etcd.endpoints", "https://192.0.2.1"}}, "is not the URL of a member"},
		{"a slash too many", [][2]string{{"etcd.prefix", "/warren/"}}, "--etcd-prefix"},
		{"certificate and key", [][2]string{{"etcd.cert-file", "/c.pem"}, {"etcd.key-file", "/c.key"}}, ""},
		{"certificate without key", [][2]string{{"etcd.cert-file", "/c.pem"}}, "etcd.key-file: a certificate and its key go together"},
		{"user and password", [][2]string{{"etcd.user", "n1"}, {"etcd.password-file", "/password"}}, ""},
		{"user without password", [][2]string{{"etcd.user", "n1"}}, "etcd.password-file: a user and the password go together"},
		{"a lease shorter than an agent's pause", [][2]string{{"etcd.lease", "1s"}}, "--etcd-lease"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := Default()
			err := error(nil)
			for _, flag := range test.flags {
				if err = c.Set(flag[0], flag[1]); err != nil {
					break
				}
			}
			if err == nil {
				err = c.Validate()
			}
			if (err == nil) != (test.problem == "") || err != nil && !strings.Contains(err.Error(), test.problem) {
				t.Errorf("want %q, got %v", test.problem, err)
			}
		})
	}
}
