// Package netdev owns what Warren does to network devices through rtnetlink: it lists links and
// their addresses, watches them, decides which of them are the underlay, creates and removes the
// kernel WireGuard device, attaches programs by clsact on kernels without TCX (before 6.6), and gives
// single packets to a device.
//
// It never touches routes, rules, sysctls or packet filters, gives no device an address, and
// removes nothing that Warren did not put there. Keys and peers belong to package wireguard,
// programs and maps to package datapath.
//
//	devices, err := netdev.Open()
//	links, err := devices.Links()
//	own, err := netdev.DetectAddresses(links, devices.RouteTo) // when the configuration names none
//	underlays, err := netdev.Underlays(links, own, nil)
//	warren0, err := devices.EnsureWireGuard("warren0", 1440)   // ErrUnsupported: the kernel has none
package netdev
