package main

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestLoadOrder(t *testing.T) {
	graph := map[string][]string{
		"wireguard":  {"udp_tunnel", "curve25519"},
		"vxlan":      {"udp_tunnel"},
		"udp_tunnel": nil,
		"curve25519": {"libcurve"},
		"libcurve":   nil,
		"broken":     {"udp_tunnel", "absent"},
	}
	needs := func(name string) ([]string, error) {
		if list, ok := graph[name]; ok {
			return list, nil
		}
		return nil, errors.New("the kernel does not have it")
	}
	tests := []struct {
		name  string
		names []string
		want  []string
		err   string
	}{
		{name: "nothing"},
		{name: "dependencies first", names: []string{"wireguard"}, want: []string{"udp_tunnel", "libcurve", "curve25519", "wireguard"}},
		{name: "each once", names: []string{"vxlan", "wireguard", "vxlan"}, want: []string{"udp_tunnel", "vxlan", "libcurve", "curve25519", "wireguard"}},
		{name: "one that is missing is named with those that need it", names: []string{"broken"},
			err: "module broken: module absent: the kernel does not have it"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := loadOrder(test.names, needs)
			if text := errorText(err); text != test.err {
				t.Errorf("error %q, want %q", text, test.err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

func TestModuleName(t *testing.T) {
	tests := []struct {
		path, want string
		ok         bool
	}{
		{"/lib/modules/6.1/kernel/net/8021q/8021q.ko", "8021q", true},
		{"kernel/arch/x86/crypto/curve25519-x86_64.ko.xz", "curve25519_x86_64", true},
		{"/lib/modules/6.1/modules.builtin", "modules.builtin", false},
	}
	for _, test := range tests {
		if got, ok := moduleName(test.path); got != test.want || ok != test.ok {
			t.Errorf("moduleName(%q) = %q, %v, want %q, %v", test.path, got, ok, test.want, test.ok)
		}
	}
}

func TestParseDepends(t *testing.T) {
	tests := []struct {
		name, info string
		want       []string
	}{
		{name: "several", info: "license=GPL\x00depends=udp_tunnel,curve25519-x86_64\x00name=wireguard\x00", want: []string{"udp_tunnel", "curve25519_x86_64"}},
		{name: "none", info: "depends=\x00retpoline=Y\x00"},
		{name: "not said", info: "license=GPL\x00"},
		{name: "empty", info: ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, parseDepends(test.info), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("dependencies (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseLdd(t *testing.T) {
	const output = `	linux-vdso.so.1 (0x00007ffd4a5f2000)
	libbpf.so.1 => /lib/x86_64-linux-gnu/libbpf.so.1 (0x00007f8b1c6a0000)
	libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f8b1c400000)
	/lib64/ld-linux-x86-64.so.2 (0x00007f8b1c8b0000)
`
	want := []string{"/lib/x86_64-linux-gnu/libbpf.so.1", "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}
	if diff := cmp.Diff(want, parseLdd(output)); diff != "" {
		t.Errorf("libraries (-want +got):\n%s", diff)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
