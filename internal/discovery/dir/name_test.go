package dir

import "testing"

func TestIsRecord(t *testing.T) {
	for name, want := range map[string]bool{
		"n1.yaml": true, "a.b.yaml": true, "N1.yaml": true, // reported, since no node can be called so
		".n1.yaml": false, ".n1.yaml.123.tmp": false, "n1.yml": false, "n1.yaml~": false, "n1.yaml.bak": false,
		"README": false, ".yaml": false, "..data": false, "apiserver.yaml": false,
	} {
		if got := isRecord(name); got != want {
			t.Errorf("%s: want %v, got %v", name, want, got)
		}
	}
}
