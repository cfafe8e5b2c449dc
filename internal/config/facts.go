package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"warren/internal/cluster"
)

// Fact is what the configuration states about a prefix, in words:
//
//	PREFIX [label=LABEL]… [owner=CLUSTER/NODE] [endpoint=ADDRESS [key=NUMBER] | encrypt=no]
//
// Without endpoint and encrypt=no it has no opinion on how the prefix is reached.
type Fact struct {
	Prefix netip.Prefix
	Info   cluster.Info
}

// The words of a fact.
const (
	wordLabel    = "label"
	wordOwner    = "owner"
	wordEndpoint = "endpoint"
	wordKey      = "key"
	wordEncrypt  = "encrypt"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *Fact) UnmarshalText(text []byte) error {
	fields := strings.Fields(string(text))
	if len(fields) == 0 {
		return errors.New("empty; begin with a prefix, such as 192.0.2.0/24")
	}
	prefix, err := parsePrefix(fields[0])
	if err != nil {
		return err
	}
	parsed := Fact{Prefix: prefix}
	given := map[string]bool{}
	for _, field := range fields[1:] {
		word, value, _ := strings.Cut(field, "=")
		if given[word] && word != wordLabel {
			return fmt.Errorf("%s is there twice; remove one of the two", word)
		}
		given[word] = true
		if err := parsed.set(word, value); err != nil {
			return err
		}
	}
	if err := checkWords(given); err != nil {
		return err
	}
	*f = parsed
	return nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return cluster.HostPrefix(addr), cluster.ValidUnicast(addr)
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, fmt.Errorf("%q is not a prefix; begin with one, such as 192.0.2.0/24", text)
	}
	return prefix, cluster.ValidPrefix(prefix)
}

func (f *Fact) set(word, value string) (err error) {
	switch word {
	case wordLabel:
		if source, name, ok := strings.Cut(value, ":"); !ok || source == "" || name == "" {
			return fmt.Errorf("label %q; a label has a source and a name, such as reserved:world", value)
		}
		f.Info.Labels = append(f.Info.Labels, value)
	case wordOwner:
		f.Info.Owner, err = parseOwner(value)
	case wordEndpoint:
		f.Info.HasPair = true
		f.Info.Pair.Key = max(f.Info.Pair.Key, cluster.KeyIDOf(1))
		if f.Info.Pair.Endpoint, err = netip.ParseAddr(value); err == nil {
			err = cluster.ValidUnicast(f.Info.Pair.Endpoint)
		}
	case wordKey:
		number, parseErr := strconv.ParseUint(value, 10, 8)
		if parseErr != nil || number == 0 {
			return fmt.Errorf("key %q; a number from 1 to 255, or encrypt=no instead", value)
		}
		f.Info.Pair.Key = cluster.KeyID(number)
	case wordEncrypt:
		if value != "no" {
			return fmt.Errorf("encrypt %q; only encrypt=no can be said, endpoint= says the opposite", value)
		}
		f.Info.HasPair = true
	default:
		return fmt.Errorf("%q is not known; write %s=, %s=, %s=, %s= or %s=no", word, wordLabel, wordOwner, wordEndpoint, wordKey, wordEncrypt)
	}
	return err
}

func parseOwner(text string) (cluster.NodeID, error) {
	id := cluster.NodeID{Cluster: cluster.DefaultCluster, Name: text}
	if name, node, ok := strings.Cut(text, "/"); ok {
		id = cluster.NodeID{Cluster: name, Name: node}
	}
	return id, errors.Join(cluster.ValidName(id.Cluster), cluster.ValidName(id.Name))
}

func checkWords(given map[string]bool) error {
	switch {
	case given[wordEncrypt] && (given[wordEndpoint] || given[wordKey]):
		return errors.New("encrypt=no and a tunnel endpoint exclude each other; remove one of the two")
	case given[wordKey] && !given[wordEndpoint]:
		return errors.New("key without endpoint; add endpoint=ADDRESS, since the two are one value")
	}
	return nil
}

// String returns the words that UnmarshalText reads.
func (f Fact) String() string {
	words := []string{f.Prefix.String()}
	for _, label := range f.Info.Labels {
		words = append(words, wordLabel+"="+label)
	}
	if f.Info.Owner != (cluster.NodeID{}) {
		words = append(words, wordOwner+"="+f.Info.Owner.String())
	}
	switch pair := f.Info.Pair; {
	case f.Info.HasPair && pair.Key == cluster.NoEncryption:
		words = append(words, wordEncrypt+"=no")
	case f.Info.HasPair:
		words = append(words, wordEndpoint+"="+pair.Endpoint.String(), fmt.Sprintf("%s=%d", wordKey, pair.Key))
	}
	return strings.Join(words, " ")
}

// MarshalText implements encoding.TextMarshaler.
func (f Fact) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// checkFacts: one fact for each prefix, since the file is one resource.
func checkFacts(c Config, say report) {
	seen := map[netip.Prefix]int{}
	for i, fact := range c.Facts {
		if first, dup := seen[fact.Prefix]; dup {
			say(fmt.Sprintf("[%d]", i), fmt.Errorf("%s is already in facts[%d]; say everything about a prefix in one line", fact.Prefix, first))
			continue
		}
		seen[fact.Prefix] = i
	}
}
