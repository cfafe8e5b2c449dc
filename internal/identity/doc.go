// Package identity names what an address is: label sets, the numbers reserved for the well-known
// ones, and a local allocator of numbers for all others. It knows no prefixes' facts and no order of
// events: which labels an address has is decided by package ipcache.
//
//	labels := identity.Complete(prefix, identity.NewLabels("reserved:kube-apiserver"), false)
//	number, reserved := identity.Reserved(labels) // not reserved: cidr:…, kube-apiserver and world
//	number = allocator.Acquire(labels)            // 1<<24 or above, until the last Release
package identity
