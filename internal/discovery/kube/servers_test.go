package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeServers(t *testing.T) {
	const https = `"ports":[{"name":"https","port":6443,"protocol":"TCP"}]`
	for _, test := range []struct {
		name, object string
		want         []string
	}{
		{"as the API server writes it", `{"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true}}],` + https + `}`, []string{"10.0.0.1:6443"}},
		{"three servers", `{"endpoints":[{"addresses":["10.0.0.1"]},{"addresses":["10.0.0.2","10.0.0.3"]}],` + https + `}`, []string{"10.0.0.1:6443", "10.0.0.2:6443", "10.0.0.3:6443"}},
		{"not ready", `{"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":false}}],` + https + `}`, nil},
		{"about to end, and serving", `{"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":false,"serving":true,"terminating":true}}],` + https + `}`, []string{"10.0.0.1:6443"}},
		{"about to end, not serving", `{"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":false,"serving":false,"terminating":true}}],` + https + `}`, nil},
		{"external, by IPv6, two ports", `{"endpoints":[{"addresses":["2001:db8::7"]}],"ports":[{"port":443},{"port":6443}]}`, []string{"[2001:db8::7]:443", "[2001:db8::7]:6443"}},
		{"a name", `{"addressType":"FQDN","endpoints":[{"addresses":["api.example.com"]}],` + https + `}`, nil},
		{"all ports, and one that is not TCP", `{"endpoints":[{"addresses":["10.0.0.1"]}],"ports":[{"port":null},{"port":6443,"protocol":"UDP"}]}`, nil},
		{"no ports", `{"endpoints":[{"addresses":["10.0.0.1"]}]}`, nil},
		{"no endpoints", `{"endpoints":null,` + https + `}`, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, server := range decodeServers(parse(t, test.object), nil) {
				got = append(got, server.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
