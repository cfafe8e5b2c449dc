package cluster

import "testing"

func TestModeReadsItsName(t *testing.T) {
	for _, mode := range []Mode{ModeObserve, ModePermissive, ModeStrict} {
		got := mode + 1
		if err := got.UnmarshalText([]byte(mode.String())); err != nil || got != mode {
			t.Errorf("%v is read as %v, %v", mode, got, err)
		}
	}
	later, got := Mode(3), ModeStrict
	if err := got.UnmarshalText([]byte(later.String())); err == nil || got != ModeStrict || later.String() != "mode(3)" {
		t.Errorf("%v is read as %v, %v", later, got, err)
	}
}
