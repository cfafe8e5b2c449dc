package yamldoc

import (
	"encoding"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fieldNames are the keys of a struct, by field index; empty for a field that has none.
type fieldNames []string

func fieldsOf(t reflect.Type) fieldNames {
	names := make(fieldNames, 0, t.NumField())
	for i := range t.NumField() {
		names = append(names, t.Field(i).Tag.Get("yaml"))
	}
	return names
}

// known returns the keys without the gaps.
func (names fieldNames) known() []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
}

// index returns the field with this key, -1 when there is none.
func (names fieldNames) index(key string) int {
	if key == "" {
		return -1
	}
	return slices.Index(names, key)
}

// paths returns the path of every key of a struct, in the order of its fields; those inside lists are
// left out, since they have no path without an index.
func paths(t reflect.Type, prefix string) []string {
	var all []string
	for i, name := range fieldsOf(t) {
		if name == "" {
			continue
		}
		path := join(prefix, name)
		field := t.Field(i).Type
		if field.Kind() == reflect.Struct && !isScalar(reflect.New(field).Elem()) {
			all = append(all, paths(field, path)...)
			continue
		}
		all = append(all, path)
	}
	return all
}

// Leaf is one value of a struct that documents can set.
type Leaf struct {
	// Key is its path, "dir.path".
	Key string
	// Value is what the field holds: a scalar or a slice.
	Value any
}

// Leaves returns every value of the struct that of points at, in the order of its fields.
func Leaves(of any) []Leaf {
	root := reflect.ValueOf(of).Elem()
	var leaves []Leaf
	for _, path := range paths(root.Type(), "") {
		field, _ := lookup(root, path)
		leaves = append(leaves, Leaf{Key: path, Value: field.Interface()})
	}
	return leaves
}

// lookup returns the field at a path.
func lookup(root reflect.Value, path string) (reflect.Value, bool) {
	name, rest, nested := strings.Cut(path, ".")
	i := fieldsOf(root.Type()).index(name)
	if i < 0 {
		return reflect.Value{}, false
	}
	field := root.Field(i)
	if !nested {
		return field, field.Kind() != reflect.Struct || isScalar(field)
	}
	if field.Kind() != reflect.Struct || isScalar(field) {
		return reflect.Value{}, false
	}
	return lookup(field, rest)
}

// SetText sets one value of the struct that into points at from text, such as that of a flag, by the
// rules of Decode; a list is separated by commas. The error is a Problem without a place.
func SetText(into any, key, text string) error {
	root := reflect.ValueOf(into).Elem()
	field, ok := lookup(root, key)
	if !ok {
		known := paths(root.Type(), "")
		return Problem{Key: plain(key), Message: "unknown key", Remedy: unknownRemedy(key, known, known)}
	}
	if field.Kind() == reflect.Slice && !isScalar(field) {
		return setList(field, key, text)
	}
	if p := setText(field, text); p != nil {
		p.Key = key
		return *p
	}
	return nil
}

func setList(target reflect.Value, key, text string) error {
	var parts []string
	if text != "" {
		parts = strings.Split(text, ",")
	}
	elements := reflect.MakeSlice(target.Type(), len(parts), len(parts))
	for i, part := range parts {
		if p := setText(elements.Index(i), strings.TrimSpace(part)); p != nil {
			p.Key = fmt.Sprintf("%s[%d]", key, i)
			return *p
		}
	}
	target.Set(elements)
	return nil
}

// isScalar tells values that are written as one word from structs and lists.
func isScalar(target reflect.Value) bool {
	_, ok := target.Addr().Interface().(encoding.TextUnmarshaler)
	return ok || target.Kind() == reflect.String || isInteger(target)
}

func isInteger(target reflect.Value) bool {
	if _, ok := target.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return false
	}
	return target.CanInt() || target.CanUint()
}

// setText sets a scalar from its text; nil when that worked.
func setText(target reflect.Value, text string) *Problem {
	switch unmarshaler, ok := target.Addr().Interface().(encoding.TextUnmarshaler); {
	case ok:
		return unmarshal(unmarshaler, target, text)
	case target.Kind() == reflect.String:
		target.SetString(text)
		return nil
	case target.CanInt():
		n, err := strconv.ParseInt(text, 10, target.Type().Bits())
		if err != nil {
			return wrongNumber(target.Type(), text, err)
		}
		target.SetInt(n)
	case target.CanUint():
		n, err := strconv.ParseUint(text, 10, target.Type().Bits())
		if err != nil {
			return wrongNumber(target.Type(), text, err)
		}
		target.SetUint(n)
	}
	return nil
}

// unmarshal lets the type read its text; what fails leaves the value that was there.
func unmarshal(unmarshaler encoding.TextUnmarshaler, target reflect.Value, text string) *Problem {
	before := reflect.ValueOf(target.Interface())
	what, _ := describe(target.Type())
	err := unmarshaler.UnmarshalText([]byte(text))
	if err == nil && (text != "" || what == "") { // netip takes "" for its zero values
		return nil
	}
	target.Set(before)
	if what != "" {
		return wrongType(target.Type(), text)
	}
	p := Explain(err)
	return &p
}

func wrongNumber(t reflect.Type, text string, err error) *Problem {
	p := wrongType(t, text)
	if errors.Is(err, strconv.ErrRange) {
		p.Message = abbreviate(text) + " is out of range"
	}
	return p
}

func wrongType(t reflect.Type, text string) *Problem {
	what, like := describe(t)
	return &Problem{Message: quote(text) + " is not " + what, Remedy: "write one " + like}
}

// expected is the remedy where something else than a value of type t stands.
func expected(t reflect.Type) string {
	what, like := describe(t)
	if what == "" {
		return "write one value"
	}
	return "write " + what + " " + like
}

// describe says in words what values of the standard library's types are and look like; empty for
// types that explain themselves in their errors.
func describe(t reflect.Type) (what, like string) {
	switch t {
	case reflect.TypeFor[netip.Addr]():
		return "an IP address", "such as 10.0.0.1 or fd00::1"
	case reflect.TypeFor[netip.Prefix]():
		return "a prefix", "such as 10.42.1.0/24 or fd00:42::/64"
	case reflect.TypeFor[time.Time]():
		return "a time", "such as 2026-11-30T03:14:00Z"
	}
	switch zero := reflect.Zero(t); {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
	case zero.CanInt():
		return "a whole number", fmt.Sprintf("from %d to %d", int64(-1)<<(t.Bits()-1), int64(1)<<(t.Bits()-1)-1)
	case zero.CanUint():
		return "a whole number", fmt.Sprintf("from 0 to %d", ^uint64(0)>>(64-t.Bits()))
	}
	return "", ""
}

// quote shows a value of the document, cut where it is too long to help and without what a terminal
// would act on.
func quote(text string) string { return strconv.Quote(abbreviate(text)) }

// plain shows a key, quoted only when it has more in it than keys have.
func plain(key string) string {
	if quoted := quote(key); quoted != `"`+key+`"` {
		return quoted
	}
	return key
}

// abbreviate cuts text to a length that a line of output can bear.
func abbreviate(text string) string {
	const bearable = 64
	if len(text) <= bearable {
		return text
	}
	return strings.ToValidUTF8(text[:bearable], "") + "…"
}
