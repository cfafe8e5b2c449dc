package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// The pair is test vector 1 of RFC 7748 §6.1 (Alice).
const (
	alicePrivate = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo="
	alicePublic  = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
)

func TestPublicKeyOfPrivateKey(t *testing.T) {
	private, err := ParsePrivateKey(alicePrivate)
	if err != nil {
		t.Fatal(err)
	}
	if got := private.Public().String(); got != alicePublic {
		t.Errorf("public key %s, want %s", got, alicePublic)
	}
}

func TestNewPrivateKeyIsClampedAndNew(t *testing.T) {
	seen := map[PrivateKey]bool{}
	for range 8 {
		key, err := NewPrivateKey()
		if err != nil {
			t.Fatal(err)
		}
		raw := key.Bytes()
		if raw[0]&7 != 0 || raw[31]&128 != 0 || raw[31]&64 == 0 {
			t.Errorf("not clamped: first byte %#x, last %#x", raw[0], raw[31])
		}
		if seen[key] {
			t.Error("the same key twice")
		}
		seen[key] = true
	}
}

func TestParseKeyProblems(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       error
	}{
		{"empty", "", ErrKeyFormat},
		{"31 bytes", "d2hhdCBhIHRlcnJpYmxlIGtleSB0byBoYXZlISE="[:40], ErrKeyFormat},
		{"trailing bits", alicePublic[:42] + "p=", ErrKeyFormat},
		{"white space", alicePublic + "\n", ErrKeyFormat},
		{"hex", strings.Repeat("ab", 32), ErrKeyFormat},
		{"all zero", strings.Repeat("A", 43) + "=", ErrKeyZero},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := ParsePublicKey(test.text); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestPrivateKeyIsHiddenEverywhere(t *testing.T) {
	key, err := ParsePrivateKey(alicePrivate)
	if err != nil {
		t.Fatal(err)
	}
	type holder struct {
		Key     PrivateKey
		Pointer *PrivateKey
	}
	value := holder{key, &key}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("key", "key", key, "holder", value)
	slog.New(slog.NewTextHandler(&log, nil)).Info("key", "key", key, "holder", value)
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{log.String(), string(encoded)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%X", "%q", "%d", "%c"} {
		texts = append(texts, fmt.Sprintf(verb, key), fmt.Sprintf(verb, &key))
	}
	_, parseErr := ParsePrivateKey(alicePrivate[:43])
	texts = append(texts, parseErr.Error())
	for _, text := range texts {
		for _, secret := range []string{alicePrivate[:8], "77076d0a", "77076D0A", "119 7 109"} {
			if strings.Contains(text, secret) {
				t.Errorf("the secret is in %q", text)
			}
		}
	}
	if key.Reveal() != alicePrivate {
		t.Error("Reveal does not give the key's text")
	}
}
