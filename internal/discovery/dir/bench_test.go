package dir

import (
	"fmt"
	"testing"

	"warren/internal/discovery/durable"
	"warren/internal/discovery/record"
	"warren/internal/discovery/record/recordtest"
)

// BenchmarkRescan is what a folder of a thousand machines costs when nothing changed: every ten seconds,
// on every machine.
func BenchmarkRescan(b *testing.B) {
	dir := b.TempDir()
	for i := range 1000 {
		node := recordtest.Sample(fmt.Sprintf("n%d", i), byte(i%250+1))
		if err := durable.Replace(dir+"/"+FileName(node.ID), record.Marshal(node), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	believed, _ := state{}.next(scan(dir))
	b.ResetTimer()
	for b.Loop() {
		if _, events := believed.next(scan(dir)); len(events) > 0 {
			b.Fatal(show(events))
		}
	}
}
