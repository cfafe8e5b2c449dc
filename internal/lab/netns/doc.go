// Package netns owns the named network namespaces of iproute2 (/run/netns): making and removing
// them, running code and processes inside, and finding the processes that live there. It decides
// nothing about what a namespace contains, and never changes the namespace of a thread that other
// goroutines may run on.
//
//	err := netns.Create(ctx, "warren-n1")
//	err = netns.Do("warren-n1", func() error { … }) // sockets made here belong to warren-n1 for good
//	err = netns.View{Namespace: "warren-n1"}.Start(exec.Command("ip", "address"))
package netns
