package plan

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"warren/internal/cluster"
)

// bigNode is one of 5,000 nodes with two addresses, two pod CIDRs and fifty addresses of single pods.
func bigNode(i int) cluster.Node {
	var key cluster.PublicKey
	binary.BigEndian.PutUint32(key[:], uint32(i+1))
	n := cluster.Node{
		ID: id(fmt.Sprintf("s%d", i)),
		Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 64, byte(i >> 8), byte(i)}), netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 8), 15: byte(i)}),
		},
		Prefixes: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128 + byte(i>>8), byte(i), 0}), 24),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 1, 4: byte(i >> 8), 5: byte(i)}), 64),
		},
		Keys:   []cluster.Key{{Public: key, Epoch: 1, Port: cluster.DefaultPort}},
		Issued: epoch,
	}
	for pod := range 50 {
		at := i*50 + pod
		n.Prefixes = append(n.Prefixes, cluster.HostPrefix(netip.AddrFrom4([4]byte{172, 16 + byte(at>>16), byte(at >> 8), byte(at)})))
	}
	return n
}

func bigWorld() *World {
	world := NewWorld(cluster.SourceDirectory, false)
	self := node("n1", 1, 0)
	changes := []Change{{Self: &self}}
	for i := range 5000 {
		n := bigNode(i)
		changes = append(changes, Change{Upsert: &n})
	}
	world.Apply(changes...)
	return world
}

// BenchmarkWorldLoad takes in 5,000 records with 270,000 prefixes at once.
func BenchmarkWorldLoad(b *testing.B) {
	for b.Loop() {
		bigWorld()
	}
}

// BenchmarkWorldChange takes in one changed record among 5,000.
func BenchmarkWorldChange(b *testing.B) {
	world := bigWorld()
	world.Changed()
	age := 0
	for b.Loop() {
		age++
		n := bigNode(age % 5000)
		n.Issued = epoch.Add(time.Duration(age) * time.Second)
		world.Apply(Change{Upsert: &n})
		world.Want(world.Changed())
	}
}

// BenchmarkWorldBuild is a full look at everything, as at each resync.
func BenchmarkWorldBuild(b *testing.B) {
	world := bigWorld()
	have := world.Want(Scope{All: true})
	for b.Loop() {
		if ops := Diff(world.Want(Scope{All: true}), have, Options{Prune: true}); ops.Len() > 0 {
			b.Fatal(ops.Len())
		}
	}
}
