package yamldoc

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/token"
)

// Format writes a scalar or a slice of scalars on one line, so that Decode and every other reader of
// YAML give it back: quoted only where it must be.
func Format(value any) string {
	if list, ok := listOf(value); ok {
		return "[" + strings.Join(each(list, Format), ", ") + "]"
	}
	text := Text(value)
	if _, isText := value.(encoding.TextMarshaler); !isText && reflect.TypeOf(value).Kind() != reflect.String {
		return text // a number
	} else if plainScalar.MatchString(text) && (isText || !token.IsNeedQuoted(text)) {
		return text
	}
	return quoteScalar(text)
}

// Text writes a scalar or a slice of scalars as SetText reads it, such as the default of a flag.
func Text(value any) string {
	if list, ok := listOf(value); ok {
		return strings.Join(each(list, Text), ",")
	}
	if marshaler, ok := value.(encoding.TextMarshaler); ok {
		text, err := marshaler.MarshalText()
		if err != nil {
			panic(fmt.Sprintf("yamldoc: %T as text: %v", value, err)) // no type of Warren's documents does
		}
		return string(text)
	}
	return fmt.Sprint(value)
}

// plainScalar matches what needs no quotes anywhere, also not inside brackets and for readers other
// than ours. Words that YAML gives a type (true, 123) match too.
var plainScalar = regexp.MustCompile(`^[A-Za-z0-9/+]([A-Za-z0-9/+._:@=*?-]*[A-Za-z0-9/+._@=*?-])?$`)

// quoteScalar writes text in double quotes. Escapes other than \xNN mean the same in Go and in YAML,
// and Go writes that one only for what is not UTF-8 and for control characters, where it means the same.
func quoteScalar(text string) string { return strconv.Quote(text) }

func listOf(value any) (reflect.Value, bool) {
	if _, ok := value.(encoding.TextMarshaler); ok {
		return reflect.Value{}, false
	}
	list := reflect.ValueOf(value)
	return list, list.Kind() == reflect.Slice
}

func each(list reflect.Value, show func(any) string) []string {
	texts := make([]string, list.Len())
	for i := range texts {
		texts[i] = show(list.Index(i).Interface())
	}
	return texts
}
