// Package kube is discovery by Kubernetes: one WarrenNode resource per machine, named as its Node, that the
// machine's agent writes and all others read.
//
//	k, err := kube.New(kube.Options{Kubeconfig: "/etc/warren/kubeconfig", Self: id})
//	go k.Run(ctx, emit)         // the caller owns the goroutine
//	err = k.Publish(ctx, node)  // this machine's own WarrenNode
//	k.Report(report)            // its status
//
// # What is read
//
// All WarrenNodes; this machine's Node and no other; the EndpointSlices of the Service default/kubernetes; the
// pods of this machine and no others; the WarrenConfig called default. Each is listed once and then watched.
//
// # What is believed
//
// An object counts as long as it says what it should. A WarrenNode that does not is reported, and its
// machine keeps the last good record until the object is good again or is deleted. An object that is being
// deleted and waits for a finalizer is still there: its machine is, too. When the API server is away, or
// answers with errors, nothing changes, and what is wrong is a problem; when it is back everything is listed
// anew, and only what such a complete list lacks is gone.
//
// # What is written
//
// The own WarrenNode, by server-side apply as warren-agent, and only when it is not as it should be: an
// agent with nothing to say writes nothing, and there is no heartbeat. Its owner is the Node, so that
// Kubernetes removes it with the Node; without a Node it is not written.
//
// The pieces: object.go and client.go reach the API; mirror.go keeps what it says, decoded by record.go,
// machine.go, servers.go and settings.go; state.go, pure, turns that into events; keep.go and status.go,
// pure, say what is to be written; write.go writes it; kube.go has the loops.
package kube
