package datapath

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"warren/internal/cluster"
	"warren/internal/datapath/model"
)

// age makes what is pinned look as if version 1 had pinned it.
func age(t testing.TB, dir string) {
	t.Helper()
	old := filepath.Join(dir, "maps-v1")
	if err := os.Rename(mapsFolder(dir), old); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{mapServers, mapExemptions, mapTold, mapFlows, mapFragments, mapArrivals} {
		if err := os.Remove(filepath.Join(old, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMigrationUnderTraffic: programs of an older version go on with their maps until the new ones have
// theirs. No packet is lost, none leaves in clear, and the counters go on.
func TestMigrationUnderTraffic(t *testing.T) {
	everyMode(t, func(t *testing.T, mode AttachMode) {
		n := newNode(t, mode)
		n.config.Mode = cluster.ModeStrict
		configure(t, n.Datapath, n.config)
		f := startFlood(t, n)
		n.waitFor(t, toNetdev, model.ReasonRedirected, 100)
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		age(t, n.dir)
		for range 2 { // the first agent dies
			n.Datapath = open(t, n.options)
			n.carriesOn(t)
			if !n.Migrating() || len(entriesOf(t, n.Datapath)) != 0 {
				t.Fatalf("migrating %v, with entries %v", n.Migrating(), entriesOf(t, n.Datapath))
			}
			apply(t, n.Datapath, testEntries()[:3], nil)
			apply(t, n.Datapath, nil, prefixesOf(testEntries()[:3]))
		}
		apply(t, n.Datapath, testEntries(), nil)
		configure(t, n.Datapath, n.config)
		n.sync(t)
		n.carriesOn(t)
		if n.Migrating() {
			t.Error("still migrating after Sync")
		}
		folders, err := mapFolders(n.dir)
		if err != nil || !slices.Equal(folders, []string{mapsFolder(n.dir)}) {
			t.Errorf("left %v: %v", folders, err)
		}
		f.end(t, n)
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		if n.start(t); n.Migrating() {
			t.Error("migrating again")
		}
	})
}

// carriesOn waits for more packets to be redirected.
func (n *node) carriesOn(t testing.TB) {
	t.Helper()
	n.waitFor(t, toNetdev, model.ReasonRedirected, n.count(t, toNetdev, model.ReasonRedirected)+100)
}

// TestMigrationWaitsForSync: while a program of the older version may be attached, its maps stay.
func TestMigrationWaitsForSync(t *testing.T) {
	n := newNode(t, Clsact)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	age(t, n.dir)
	n.Datapath = open(t, n.options)
	apply(t, n.Datapath, testEntries(), nil)
	configure(t, n.Datapath, n.config)
	bad := Underlay{Index: 1 << 30, Name: "gone", L3: true}
	if err := n.Sync(t.Context(), []Underlay{underlayOf(t, "eth0"), bad}, n.config.Tunnels); err == nil {
		t.Fatal("a device that does not exist was attached to")
	}
	if _, err := os.Stat(filepath.Join(n.dir, "maps-v1")); err != nil || !n.Migrating() {
		t.Errorf("migrating %v: %v", n.Migrating(), err)
	}
	n.sync(t)
	if n.Migrating() {
		t.Error("still migrating")
	}
}

// TestMigrationRefuses: a map of the older version that is not what it was is not taken over, and stays.
func TestMigrationRefuses(t *testing.T) {
	n := newNode(t, Clsact)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	age(t, n.dir)
	old := filepath.Join(n.dir, "maps-v1")
	if err := errors.Join(os.Remove(filepath.Join(old, mapUnderlays)), os.Rename(filepath.Join(old, mapExact), filepath.Join(old, mapUnderlays))); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(n.options); !errors.Is(err, ErrIncompatible) {
		t.Errorf("error %v, want ErrIncompatible", err)
	}
	if _, err := os.Stat(filepath.Join(old, mapUnderlays)); err != nil {
		t.Error(err)
	}
	sendUDP(t, "10.0.0.1:0", "10.0.0.2:7", 0, "secret")
	n.inTunnel(t, 4, "secret")
}
