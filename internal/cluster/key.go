package cluster

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
)

// KeyLen is the length in bytes of a WireGuard (Curve25519) key.
const KeyLen = 32

// Errors of key parsing; wrapped with the position by whoever reads the text.
var (
	ErrKeyFormat = errors.New("a key is 32 bytes in standard base64 (44 characters ending in '=')")
	ErrKeyZero   = errors.New("the all-zero key is not a key")
)

// PublicKey is the WireGuard public key of one device: 32 bytes, Curve25519.
// It is comparable and prints as base64, like `wg show`.
type PublicKey [KeyLen]byte

// ParsePublicKey reads the base64 text that `wg pubkey` and `warren keys public` print.
func ParsePublicKey(text string) (PublicKey, error) {
	raw, err := parseKey(text)
	return PublicKey(raw), err
}

// IsZero reports whether k is the all-zero key, which no node may use.
func (k PublicKey) IsZero() bool { return k == PublicKey{} }

// String returns k in base64.
func (k PublicKey) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Short returns the first characters of k, enough to recognise it in a log.
func (k PublicKey) Short() string { return k.String()[:8] }

// MarshalText implements encoding.TextMarshaler.
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *PublicKey) UnmarshalText(text []byte) error {
	parsed, err := ParsePublicKey(string(text))
	if err != nil {
		return err
	}
	*k = parsed
	return nil
}

// PrivateKey is a WireGuard private key. Every formatter prints it as (hidden);
// only Reveal gives the text, for the file that keeps it.
type PrivateKey struct{ raw [KeyLen]byte }

const hidden = "(hidden)"

// NewPrivateKey makes a key from the system's random source.
func NewPrivateKey() (PrivateKey, error) {
	var k PrivateKey
	if _, err := rand.Read(k.raw[:]); err != nil {
		return PrivateKey{}, fmt.Errorf("read random bytes: %w", err)
	}
	// Clamped as in RFC 7748 §5, so that the text is the same as the kernel's.
	k.raw[0] &= 248
	k.raw[31] = k.raw[31]&127 | 64
	return k, nil
}

// ParsePrivateKey reads the base64 text that `wg genkey` and `warren keys generate` print.
func ParsePrivateKey(text string) (PrivateKey, error) {
	raw, err := parseKey(text)
	return PrivateKey{raw}, err
}

// Public returns the public half.
func (k PrivateKey) Public() PublicKey {
	private, err := ecdh.X25519().NewPrivateKey(k.raw[:])
	if err != nil { // only a wrong length is an error, and the length is fixed
		return PublicKey{}
	}
	return PublicKey(private.PublicKey().Bytes())
}

// IsZero reports whether k was never set.
func (k PrivateKey) IsZero() bool { return k == PrivateKey{} }

// Bytes returns the 32 secret bytes, for the WireGuard device.
func (k PrivateKey) Bytes() [KeyLen]byte { return k.raw }

// Reveal returns the secret in base64, for the file that keeps it and for nothing else.
func (k PrivateKey) Reveal() string { return base64.StdEncoding.EncodeToString(k.raw[:]) }

// String implements fmt.Stringer without the secret.
func (k PrivateKey) String() string { return hidden }

// GoString implements fmt.GoStringer without the secret.
func (k PrivateKey) GoString() string { return hidden }

// Format implements fmt.Formatter so that no verb reaches the bytes.
func (k PrivateKey) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(hidden)) }

// LogValue implements slog.LogValuer without the secret.
func (k PrivateKey) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText implements encoding.TextMarshaler without the secret.
func (k PrivateKey) MarshalText() ([]byte, error) { return []byte(hidden), nil }

func parseKey(text string) ([KeyLen]byte, error) {
	var key [KeyLen]byte
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	// The decoder passes over line breaks; a key has none.
	if err != nil || len(raw) != KeyLen || len(text) != base64.StdEncoding.EncodedLen(KeyLen) {
		return key, ErrKeyFormat // never %q of the text: it may be a private key
	}
	copy(key[:], raw)
	if key == [KeyLen]byte{} {
		return key, ErrKeyZero
	}
	return key, nil
}
