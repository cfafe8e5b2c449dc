// Package etcd is discovery by the keys of etcd: PREFIX/nodes/NAME has the record of a machine, in the format
// of package record, and PREFIX/apiservers may have where the API server is reached.
//
//	e, err := etcd.New(etcd.Options{Endpoints: []string{"https://192.0.2.1:2379"}, Prefix: "/warren/v1", Self: id})
//	go e.Run(ctx, emit)           // the caller owns the goroutine
//	err = e.Publish(ctx, node)    // kept by Run
//
// # A key that runs out, and a machine that has left
//
// The key of a machine has a lease, which its agent renews. An agent that is stopped leaves a datapath behind
// that goes on encrypting, so a key that ran out says that the agent is away, and nothing of the machine: it is
// a Delete without Left, and the agent holds on to such a peer as long as anything comes from it. A machine that
// leaves says so: its key then has the word "withdrawn", which is a Delete with Left, also for an agent that
// was not listening and reads everything anew. An operator says it with the same word of a machine that is gone.
//
// # One session, one connection
//
// A session reads all keys, then follows their changes from that revision on. Whatever breaks it (a lost
// connection, compaction, a refusal) leads to another reading, which is compared with what is believed. So
// nothing depends on a history that may be gone: etcd may have been compacted, emptied, or restored to a
// revision from before. Files with certificates and passwords are read for each session.
//
// The pieces: key.go says which key is whose; state.go, pure, turns what keys say into the next state and
// events; own.go, pure but for its lock, says what is to be done about the own key; session.go is one connection;
// connect.go makes it; trouble.go puts errors into words; etcd.go is the loop.
package etcd
