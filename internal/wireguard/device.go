package wireguard

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"syscall"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"warren/internal/cluster"
	"warren/internal/plan"
)

// Client is what Device needs of wgctrl; *wgctrl.Client is one, and wgfake has another.
type Client interface {
	// Device reads a device; fs.ErrNotExist when there is none of that name.
	Device(name string) (*wgtypes.Device, error)
	// ConfigureDevice changes a device; fs.ErrNotExist likewise.
	ConfigureDevice(name string, config wgtypes.Config) error
	Close() error
}

// Device is one WireGuard device, which need not exist yet. It is safe for concurrent use.
type Device struct {
	name string
	log  *slog.Logger
	dial func() (Client, error)

	mu     sync.Mutex
	client Client
	own    cluster.PublicKey // of the device; zero while not known
}

// Open returns the device of that name in the network namespace of the calling thread. The device
// may come later and may go: every method says ErrNoDevice while it is not there.
func Open(name string, log *slog.Logger) (*Device, error) {
	return OpenWith(name, func() (Client, error) { return wgctrl.New() }, log)
}

// OpenWith is Open with another way to the devices than wgctrl: a fake one.
func OpenWith(name string, dial func() (Client, error), log *slog.Logger) (*Device, error) {
	client, err := dial()
	if err != nil {
		return nil, fmt.Errorf("open the WireGuard control socket: %w", err)
	}
	return &Device{name: name, log: log, dial: dial, client: client}, nil
}

// Close releases the control socket. The WireGuard device stays as it is.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.client.Close()
}

// Configure gives the device its private key, and want's port and mark, as far as they differ. It
// never touches peers, except that WireGuard itself drops one that has the new key. Name and MTU of
// want are netdev's business.
//
// Errors: ErrNoDevice, ErrZeroKey, syscall.EADDRINUSE.
func (d *Device) Configure(want plan.Device, key cluster.PrivateKey) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.configure(want, key); err != nil {
		return fmt.Errorf("configure %s: %w", d.name, err)
	}
	return nil
}

func (d *Device) configure(want plan.Device, key cluster.PrivateKey) error {
	switch {
	case key.IsZero():
		return ErrZeroKey
	case want.Port == 0: // WireGuard would choose another one each time
		return fmt.Errorf("port 0; the default is %d", cluster.DefaultPort)
	}
	actual, err := d.read()
	if err != nil {
		return err
	}
	if actual.Mark != want.Mark {
		// Before the port, and in a request of its own: a userspace device carries out a request
		// line by line, port first, and the new socket must not send a packet without the mark.
		mark := int(want.Mark)
		if err := d.set(wgtypes.Config{FirewallMark: &mark}); err != nil {
			return fmt.Errorf("set mark %#x: %w", want.Mark, err)
		}
		d.log.Info("WireGuard mark set", "device", d.name, "mark", want.Mark)
	}
	if actual.PublicKey != key.Public() {
		private := wgtypes.Key(key.Bytes())
		if err := d.set(wgtypes.Config{PrivateKey: &private}); err != nil {
			return fmt.Errorf("set the private key: %w", err)
		}
		d.own = key.Public()
		d.log.Info("WireGuard key set", "device", d.name, "public_key", d.own)
	}
	if actual.Port != want.Port {
		return d.setPort(want.Port)
	}
	return nil
}

func (d *Device) setPort(want uint16) error {
	port := int(want)
	err := d.set(wgtypes.Config{ListenPort: &port})
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen on UDP port %d: %w; `ss -ulpn sport = :%[1]d` names the program that has it", want, err)
	}
	if err != nil {
		return fmt.Errorf("listen on UDP port %d: %w", want, err)
	}
	d.log.Info("WireGuard port set", "device", d.name, "port", want)
	return nil
}

// Read returns the state of the device. Error: ErrNoDevice.
func (d *Device) Read() (Actual, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	actual, err := d.read()
	if err != nil {
		return Actual{}, fmt.Errorf("read %s: %w", d.name, err)
	}
	return actual, nil
}

func (d *Device) read() (Actual, error) {
	var raw *wgtypes.Device
	err := d.call(func(client Client) (err error) {
		raw, err = client.Device(d.name)
		return err
	})
	if err != nil {
		return Actual{}, err
	}
	actual := actualOf(raw)
	d.own = actual.PublicKey
	return actual, nil
}

// ownKey returns the device's public key, zero when it has no key yet.
func (d *Device) ownKey() (cluster.PublicKey, error) {
	if !d.own.IsZero() {
		return d.own, nil
	}
	_, err := d.read()
	return d.own, err
}

func (d *Device) set(config wgtypes.Config) error {
	return d.call(func(client Client) error { return client.ConfigureDevice(d.name, config) })
}

// call makes one request. wgctrl looks for the kernel's WireGuard once, when it is opened, and the
// kernel loads it with the first link. So a client that knows no such device gives way to a
// fresh one, if that one knows it.
func (d *Device) call(request func(Client) error) error {
	err := request(d.client)
	if !errors.Is(err, fs.ErrNotExist) {
		return translate(err)
	}
	fresh, dialErr := d.dial()
	if dialErr != nil {
		return translate(err)
	}
	if err := request(fresh); err != nil {
		_ = fresh.Close()
		return translate(err)
	}
	_ = d.client.Close()
	d.client = fresh
	return nil
}
