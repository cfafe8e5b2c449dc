package wireguard_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"warren/internal/cluster"
	"warren/internal/plan"
	"warren/internal/wireguard"
	"warren/internal/wireguard/userspace"
	"warren/internal/wireguard/wgfake"
	"warren/internal/wireguard/wgtest"
)

func TestMain(m *testing.M) { wgtest.Main(m) }

var settings = plan.Device{Port: 51880, Mark: 0x10}

// TestContract holds real devices against what the fake in wgfake holds, too.
func TestContract(t *testing.T) {
	wgtest.EachEngine(t, func(t *testing.T, engine wgtest.Engine) {
		namespace := wgtest.NewNamespace(t)
		wgtest.Contract(t, func(t *testing.T) *wireguard.Device { return engine(t, namespace).Device })
	})
}

func TestEngine(t *testing.T) {
	wgtest.EachEngine(t, func(t *testing.T, engine wgtest.Engine) {
		actual, err := engine(t, wgtest.NewNamespace(t)).Read()
		if err != nil {
			t.Fatal(err)
		}
		if got := "TestEngine/" + actual.Engine.String(); got != t.Name() {
			t.Errorf("engine %s", actual.Engine)
		}
	})
}

func TestNoDevice(t *testing.T) {
	name := wgtest.DeviceName()
	device, err := wireguard.Open(name, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	_, readErr := device.Read()
	for what, err := range map[string]error{
		"Read":        readErr,
		"Configure":   device.Configure(settings, wgtest.NewKey(t)),
		"SetPeers":    device.SetPeers([]plan.Peer{{Key: cluster.PublicKey{1}}}),
		"RemovePeers": device.RemovePeers([]cluster.PublicKey{{1}}),
	} {
		if !errors.Is(err, wireguard.ErrNoDevice) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %v and the device's name", what, err, wireguard.ErrNoDevice)
		}
	}
}

// TestStaleSocket: what a killed tunnel leaves behind is no device.
func TestStaleSocket(t *testing.T) {
	wgtest.NeedRoot(t)
	if err := os.MkdirAll("/var/run/wireguard", 0o755); err != nil {
		t.Fatal(err)
	}
	name := wgtest.DeviceName()
	path := "/var/run/wireguard/" + name + ".sock"
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	listener.SetUnlinkOnClose(false)
	listener.Close()
	device, err := wireguard.Open(name, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	if _, err := device.Read(); !errors.Is(err, wireguard.ErrNoDevice) {
		t.Errorf("Read: %v, want %v", err, wireguard.ErrNoDevice)
	}
}

// TestPortTaken: the answer of a userspace device is a number in a text; it comes out as an errno.
func TestPortTaken(t *testing.T) { wgtest.EachEngine(t, testPortTaken) }

func testPortTaken(t *testing.T, engine wgtest.Engine) {
	namespace := wgtest.NewNamespace(t)
	device := engine(t, namespace)
	namespace.IP(t, "link", "set", device.Name, "up") // the kernel's device has a socket only then
	var other net.PacketConn
	namespace.Do(t, func() (err error) {
		other, err = net.ListenPacket("udp4", ":51880")
		return err
	})
	key := wgtest.NewKey(t)
	err := device.Configure(settings, key)
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "ss -ulpn") {
		t.Errorf("Configure: %v, want %v and a remedy", err, syscall.EADDRINUSE)
	}
	_ = other.Close()
	if err := device.Configure(settings, key); err != nil {
		t.Errorf("Configure after the other program went: %v", err)
	}
	if actual, err := device.Read(); err != nil || actual.Port != settings.Port {
		t.Errorf("port %d, %v; want %d", actual.Port, err, settings.Port)
	}
}

// client lets a test stand between a Device and the fake.
type client struct {
	wireguard.Client
	configure func(wgtypes.Config) error // before the real one; nil for nothing
}

func (c client) ConfigureDevice(name string, config wgtypes.Config) error {
	if c.configure != nil {
		if err := c.configure(config); err != nil {
			return err
		}
	}
	return c.Client.ConfigureDevice(name, config)
}

func openBetween(t *testing.T, configure func(wgtypes.Config) error) *wireguard.Device {
	t.Helper()
	kernel := wgfake.New()
	kernel.Add("warren0")
	dial := func() (wireguard.Client, error) {
		inner, err := kernel.Dial()
		return client{inner, configure}, err
	}
	device, err := wireguard.OpenWith("warren0", dial, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return device
}

// TestOneBadPeer: a peer that the device refuses costs no other its change, and is named.
func TestOneBadPeer(t *testing.T) {
	bad := cluster.PublicKey{7}
	device := openBetween(t, func(config wgtypes.Config) error {
		for _, peer := range config.Peers {
			if peer.PublicKey == wgtypes.Key(bad) {
				return fmt.Errorf("read: wguser: errno=-%d", syscall.EAFNOSUPPORT)
			}
		}
		return nil
	})
	var peers []plan.Peer
	for i := range 100 {
		peers = append(peers, plan.Peer{Key: cluster.PublicKey{byte(i + 1)}, Node: cluster.NodeID{Cluster: "default", Name: fmt.Sprintf("n%d", i+1)}})
	}
	err := device.SetPeers(peers)
	if !errors.Is(err, syscall.EAFNOSUPPORT) || !strings.Contains(err.Error(), "default/n7") || strings.Contains(err.Error(), "default/n8") {
		t.Errorf("SetPeers: %v, want %v for n7 alone", err, syscall.EAFNOSUPPORT)
	}
	if actual, err := device.Read(); err != nil || len(actual.Peers) != 99 {
		t.Errorf("%d peers, %v; want the other 99", len(actual.Peers), err)
	}
}

// TestConfigureAsksForDifferencesOnly: a device that is as wanted gets no request at all.
func TestConfigureAsksForDifferencesOnly(t *testing.T) {
	var requests []string
	device := openBetween(t, func(config wgtypes.Config) error {
		var what []string
		for name, set := range map[string]bool{
			"key": config.PrivateKey != nil, "port": config.ListenPort != nil, "mark": config.FirewallMark != nil, "peers": config.Peers != nil,
		} {
			if set {
				what = append(what, name)
			}
		}
		requests = append(requests, strings.Join(what, "+"))
		return nil
	})
	key := wgtest.NewKey(t)
	for _, step := range []struct {
		device plan.Device
		want   string
	}{
		{settings, "mark key port"}, // the mark first: no packet leaves without it
		{settings, ""},
		{plan.Device{Port: 51881, Mark: 0x10}, "port"},
		{plan.Device{Port: 51881, Mark: 0x20}, "mark"},
	} {
		requests = nil
		if err := device.Configure(step.device, key); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(requests, " "); got != step.want {
			t.Errorf("for %+v: requests %q, want %q", step.device, got, step.want)
		}
	}
}

// TestBatches: thousands of peers are some dozen requests.
func TestBatches(t *testing.T) {
	requests := 0
	device := openBetween(t, func(config wgtypes.Config) error {
		requests++
		ips := 0
		for _, peer := range config.Peers {
			ips += len(peer.AllowedIPs)
		}
		if len(config.Peers) > 32 || ips > 256 {
			return fmt.Errorf("%d peers and %d prefixes in one request", len(config.Peers), ips)
		}
		return nil
	})
	var peers []plan.Peer
	for i := range 3200 {
		peers = append(peers, plan.Peer{Key: cluster.PublicKey{1, byte(i >> 8), byte(i)}})
	}
	if err := device.SetPeers(peers); err != nil {
		t.Fatal(err)
	}
	if requests != 100 {
		t.Errorf("%d requests for 3200 peers, want 100", requests)
	}
}

// TestKernelComesLater: wgctrl looks for the kernel's WireGuard when it is opened, which may be
// before the first link has loaded it.
func TestKernelComesLater(t *testing.T) {
	kernel, loaded := wgfake.New(), false
	dial := func() (wireguard.Client, error) {
		if loaded {
			return kernel.Dial()
		}
		return wgfake.New().Dial()
	}
	device, err := wireguard.OpenWith("warren0", dial, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := device.Read(); !errors.Is(err, wireguard.ErrNoDevice) {
		t.Fatalf("Read: %v, want %v", err, wireguard.ErrNoDevice)
	}
	kernel.Add("warren0")
	loaded = true
	if err := device.Configure(settings, wgtest.NewKey(t)); err != nil {
		t.Error(err)
	}
}

func TestOpenFails(t *testing.T) {
	dial := func() (wireguard.Client, error) { return nil, fs.ErrPermission }
	if _, err := wireguard.OpenWith("warren0", dial, slog.New(slog.DiscardHandler)); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("OpenWith: %v, want %v", err, fs.ErrPermission)
	}
}

// TestSecrets: the private key is in no log line, error or formatted value.
func TestSecrets(t *testing.T) {
	var text strings.Builder
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	namespace := wgtest.NewNamespace(t)
	tunnel := namespace.NewTunnel(t, userspace.TunnelOptions{Executable: wgtest.VerboseExecutable(t)})
	tunnel.Ensure(t)
	device := namespace.Open(t, tunnel.Device, log)
	key := wgtest.NewKey(t)
	if err := device.Configure(settings, key); err != nil {
		t.Fatal(err)
	}
	actual, err := device.Read()
	if err != nil {
		t.Fatal(err)
	}
	provoke(t, tunnel.Device, key)
	fmt.Fprintf(&text, "%v %+v %#v %+v %#v\n", actual, actual, actual, device.Device, device.Device)
	fmt.Fprintln(&text, device.SetPeers([]plan.Peer{{Key: key.Public()}}))
	fmt.Fprint(&text, tunnel.Log(t))
	raw := key.Bytes()
	for _, secret := range []string{key.Reveal(), fmt.Sprintf("%x", raw), fmt.Sprintf("%d", raw), fmt.Sprintf("%#v", raw)} {
		if strings.Contains(text.String(), secret) {
			t.Errorf("the private key is in what was printed:\n%s", text.String())
		}
	}
	for _, proof := range []string{actual.PublicKey.String(), "UAPI: Updating private key", "invalid UAPI operation: private_key=(hidden)"} {
		if !strings.Contains(text.String(), proof) {
			t.Errorf("the check is void without %q:\n%s", proof, text.String())
		}
	}
}

// provoke sends a request that goes wrong before the key. The engine drops what it has read of the
// request, 4096 bytes, takes the next line for another request, and quotes it.
func provoke(t *testing.T, device string, key cluster.PrivateKey) {
	t.Helper()
	conn, err := net.Dial("unix", "/var/run/wireguard/"+device+".sock")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	wrong := "set=1\nlisten_port=none\n"
	wrong += strings.Repeat("x", 4096-len(wrong)-1) + "\n"
	if _, err := fmt.Fprintf(conn, "%sprivate_key=%x\n\n", wrong, key.Bytes()); err != nil {
		t.Fatal(err)
	}
	must(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
}
