package wireguard

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"syscall"

	"warren/internal/cluster"
)

// Errors that a caller branches on.
var (
	// ErrNoDevice: there is no WireGuard device of that name, or the process behind it is gone.
	ErrNoDevice = errors.New("no such WireGuard device")
	// ErrOwnKey: a peer has this node's own public key.
	ErrOwnKey = errors.New("the key is this node's own; two nodes share a private key")
	// ErrZeroKey: the key is all zero, which is never somebody's.
	ErrZeroKey = cluster.ErrKeyZero
)

// uapiErrno finds the number in the text that wgctrl makes of a userspace device's answer. The
// device sends it negative.
var uapiErrno = regexp.MustCompile(`\berrno=-?(\d+)`)

// translate gives the errors of both engines one form: ErrNoDevice, or the errno.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return ErrNoDevice
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: nobody serves its socket", ErrNoDevice)
	}
	if match := uapiErrno.FindStringSubmatch(err.Error()); match != nil {
		if number, parseErr := strconv.Atoi(match[1]); parseErr == nil {
			return syscall.Errno(number)
		}
	}
	return err
}
