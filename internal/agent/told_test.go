package agent

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/discovery"
)

func TestSettingsOfTheEngineGoOverTheConfiguration(t *testing.T) {
	base := config.Default()
	settings := []discovery.Setting{
		{Key: "mode", Value: "strict", Where: "WarrenConfig default: spec.mode"},
		{Key: "mtu", Value: "17", Where: "WarrenConfig default: spec.mtu"},
		{Key: "exempt", Value: "192.0.2.7/32 tcp/179,10.0.0.0/8", Where: "WarrenConfig default: spec.exempt"},
	}
	got, refused := withSettings(base, settings)
	if got.Mode != cluster.ModeStrict || len(got.Exempt) != 2 || got.MTU != base.MTU {
		t.Errorf("mode %s, exempt %v, mtu %d", got.Mode, got.Exempt, got.MTU)
	}
	if len(refused) != 1 || refused[0].Where != "WarrenConfig default: spec.mtu" {
		t.Errorf("refused: %v", refused)
	}
	if base.Mode != cluster.ModePermissive {
		t.Error("the base was changed")
	}
}

func TestToldSurvives(t *testing.T) {
	path := filepath.Join(t.TempDir(), toldFile)
	if got, err := loadTold(path); err != nil || !cmp.Equal(got, told{}, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})) {
		t.Fatalf("of no file: %v, %v", got, err)
	}
	want := told{
		Machine: discovery.Machine{
			Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
			Prefixes:  []netip.Prefix{netip.MustParsePrefix("10.42.1.0/24")},
		},
		Settings: []discovery.Setting{{Key: "mode", Value: "strict", Where: "somewhere"}},
	}
	if err := want.save(path); err != nil {
		t.Fatal(err)
	}
	got, err := loadTold(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := loadTold(path); err == nil || len(got.Settings) != 0 {
		t.Errorf("of half a file: %v, %v", got, err)
	}
}

func TestOwnAddressesAndPrefixes(t *testing.T) {
	here, elsewhere := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	pods, more := netip.MustParsePrefix("10.42.1.0/24"), netip.MustParsePrefix("10.43.1.0/24")
	says := told{Machine: discovery.Machine{Addresses: []netip.Addr{elsewhere, here}, Prefixes: []netip.Prefix{pods, more}}}
	addresses := says.ownAddresses(func(a netip.Addr) bool { return a == here })
	prefixes := says.ownPrefixes([]netip.Prefix{more})
	if diff := cmp.Diff([]netip.Addr{here}, addresses, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("addresses (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]netip.Prefix{more, pods}, prefixes, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("prefixes (-want +got)\n%s", diff)
	}
	if len(says.Machine.Addresses) != 2 {
		t.Error("what the engine said was changed")
	}
}
