// Package ipcache maps a prefix to what is known of it: identity with labels, the (tunnel endpoint,
// key) pair, the owning machine, flags. It keeps the facts of all sources and flattens them, so that
// the state is a function of the live facts and never of their order (docs/ipcache.md).
//
// It is pure: no I/O, no clock, no goroutine, no lock. One goroutine owns a Cache.
//
//	cache := ipcache.New()
//	deltas := cache.Upsert(facts...)                           // what changed, whole entries
//	deltas = cache.DeleteResource(cluster.SourceDirectory, "node/default/n2")
//	prefix, entry, ok := cache.Lookup(addr)                    // longest match
package ipcache
